"""What each part must do: the contracts of outbox, inbox and transport. `postroom.testing.contracts` checks them."""
