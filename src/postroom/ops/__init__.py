"""Care: what a person asks of a running outbox, whatever face asks for them."""
