"""What Postroom was asked to do: by five documents, A to E. Each line that a test can show is here, in our words.

A test that shows a requirement says so: `@pytest.mark.requirement("B7")`. Several are allowed. A class may have the mark, too.
The cases of a contract are shipped, and carry no marks of ours: the table names them.
`docs/reference/requirements.md` is made from this table and from the marks."""

from __future__ import annotations

from typing import NamedTuple

NOT_YET = "not yet"


class Requirement(NamedTuple):
    """One line of a document."""

    line: str
    """What must hold, in our words."""
    missing: str = ""
    """What is not there yet. Empty: nothing is missing. `NOT_YET`: all of it is missing, and no test shows it."""
    cases: tuple[str, ...] = ()
    """Cases of the contracts that show it, too, on every store."""


DOCUMENTS: dict[str, str] = {
    "A": "Outbox, inbox, errors and traces, so that people can operate a saga",
    "B": "The protocol of a worker that sends orders from an outbox",
    "C": "From an outbox to Kafka",
    "D": "An outbox and keys that stop repeats, in any database with transactions",
    "E": "An outbox on MongoDB, without a broker",
}
"""What each document is about, by its letter."""

REQUIREMENTS: dict[str, Requirement] = {
    "A1": Requirement("Your rows and the message are one commit: both are there, or neither is."),
    "A2": Requirement(
        "A relay finds what was not sent, sends it, and writes down that it did. A failure adds an attempt and "
        "a time for the next try."
    ),
    "A3": Requirement("A message that is sent twice does no harm, because its receiver handles it once."),
    "A4": Requirement(
        "The inbox knows a message by consumer and id (and by source). It writes the row first, skips what it "
        "knows, then handles, "
        "then acknowledges.",
        cases=("test_a_message_is_new_once", "test_every_consumer_has_its_own_memory"),
    ),
    "A5": Requirement(
        "The code classes each error: business or technical, worth another try or not. Each class leads to one action.",
        "whether an error was a business error is not stored, and nothing compensates",
    ),
    "A6": Requirement(
        "A log line about a delivery or a saga has the ids, the step, the attempt and the class of the error.", NOT_YET
    ),
    "A7": Requirement(
        "A message carries its id, type, aggregate, correlation id, W3C trace context, body and time, from "
        "`put` to the handler; "
        "OpenTelemetry joins the spans."
    ),
    "A8": Requirement(
        "A saga of payment, stock and shipping: it succeeds; it undoes its steps when the stock is empty; it "
        "retries a time-out, "
        "then undoes its steps or asks a person.",
        NOT_YET,
    ),
    "A9": Requirement("The same message delivered twice leaves the data as one delivery does."),
    "A10": Requirement(
        "The log alone tells which saga failed, at which step and attempt, and how far it was undone.", NOT_YET
    ),
    "B1": Requirement(
        "A row has a unique idempotency key, a digest, a status, attempts, the last error (cut at 512 "
        "characters), its owner, and "
        "all its times.",
        cases=("test_an_error_is_kept_and_cut", "test_a_record_says_who_has_it_in_flight"),
    ),
    "B2": Requirement(
        "A message is pending, sending, published, failed or dead, and goes from one to the other only as the "
        "protocol draws it. "
        "An expired one is not sent."
    ),
    "B3": Requirement(
        "Workers claim in batches and never the same message at once. A lease is renewed while its worker "
        "lives; when it ends, "
        "another worker takes over.",
        cases=("test_two_claims_at_once_share_nothing", "test_a_renewed_lease_holds"),
    ),
    "B4": Requirement(
        "The preset `worker` has the protocol's numbers. Each setting has its environment variable. A relay "
        "inside an application "
        "is off by default."
    ),
    "B5": Requirement(
        "The ledger is the truth: it is settled before the message, after a success and after the last failure.",
        NOT_YET,
    ),
    "B6": Requirement(
        "A message whose key is in the ledger with another digest is dead with IDEMPOTENCY_CONFLICT, and the "
        "ledger stays as it is.",
        NOT_YET,
    ),
    "B7": Requirement(
        "It recovers from a crash, from a broker that is down, from a broken body, from attempts that are used "
        "up, and from a "
        "database that fails after the send.",
        "there is no ledger yet whose write could fail after the send",
    ),
    "B8": Requirement(
        "An operator counts by status and requeues what is dead. What a dead worker had locked is freed."
    ),
    "B9": Requirement(
        "Metrics, structured logs with a hashed key, and spans tell what a worker does.",
        "there are spans, by the names that OpenTelemetry gives them; metrics and structured logs are missing",
    ),
    "B10": Requirement(
        "Credentials come from a place for secrets, and no log shows them or a sensitive field.",
        "fields of a body cannot be masked",
    ),
    "B11": Requirement(
        "Five tests from end to end: success, a time-out, a crash, attempts used up and requeued, and a key "
        "that the ledger knows.",
        "the fifth needs the ledger",
    ),
    "B12": Requirement(
        "An HTTP endpoint takes orders with an idempotency key; the same key with another body is answered with 409.",
        NOT_YET,
    ),
    "C1": Requirement("What committed is not lost, whenever Kafka is down or a process is killed."),
    "C2": Requirement("The relay claims up to 500 messages, publishes them together and settles them together."),
    "C3": Requirement(
        "Waits double from 2 seconds to 10 minutes. After five failures a message is dead, and people are told.",
        "it is told in the relay's output and by `status` and `doctor`; no alert is sent",
    ),
    "C4": Requirement("Several relays share the work, and none does what another does."),
    "C5": Requirement("An index holds only what is open, and the relay's statements use it."),
    "C6": Requirement(
        "Published rows older than seven days are deleted each day.",
        "the statements are there and tested; there is no `purge` command and no schedule",
    ),
    "C7": Requirement("An alert comes when too many messages are pending or failed.", NOT_YET),
    "C8": Requirement("Fraud detection reads transfers from Kafka, up to 500 at once, and handles each one once."),
    "C9": Requirement("A relay can read the database's log instead of its tables.", NOT_YET),
    "C10": Requirement("Messages of one aggregate arrive in the order in which they were written."),
    "D1": Requirement(
        "Each event has a document: schema, compatibility, keys, owner, what a consumer may expect.", NOT_YET
    ),
    "D2": Requirement("It runs on SQL databases with transactions, and sends to Kafka, RabbitMQ and webhooks."),
    "D3": Requirement("No transaction is open in the database while something is sent to a broker."),
    "D4": Requirement(
        "A relay polls or reads the database's log; Debezium's outbox router can read the same table.",
        "polling only",
    ),
    "D5": Requirement(
        "A consumer is guarded in one of three ways: a table of what was handled, a constraint of its own, or "
        "Redis with a time to "
        "live that is longer than a replay can reach back. The last one warns of its limits."
    ),
    "D6": Requirement(
        "An HTTP command with a known idempotency key gets the first answer again; with another body it is refused.",
        NOT_YET,
    ),
    "D7": Requirement("A person replays messages by type, time or aggregate, so many and so fast at most.", NOT_YET),
    "D8": Requirement(
        "Tests prove the rollback, the retry after a broker's failure, the repeated delivery, and a crash "
        "before and after publishing."
    ),
    "E1": Requirement("MongoDB is a store, and functions of the process handle its streams, without a broker."),
    "E2": Requirement(
        "A lease and an attempt for what is claimed; another takes over when the lease ends; what fails comes "
        "back later; poison is "
        "dead, in a collection of its own if you wish."
    ),
    "E3": Requirement("A handler writes under a natural key (page and revision), so that a repeat changes nothing."),
    "E4": Requirement(
        "With a replica set, data and message are one transaction. Without one, a reconciler finds records "
        "whose message is missing."
    ),
    "E5": Requirement(
        "Counts by status, the lag of the oldest open message and what is in flight are seen; alerts tell of "
        "lag and of dead messages.",
        "`postroom status` shows them; there are no metrics and no alerts",
    ),
    "E6": Requirement("The wiki example saves a revision of a page, renders it and indexes it."),
}
"""Each requirement by its name."""

WORDS: list[tuple[str, str, str]] = [
    ("`succeeded` (B), `PUBLISHED` (C, D), `done` (E)", "published", "The broker confirmed that it has the message."),
    (
        "`aborted` (B), `DEAD_LETTER` (C), `dead` (E)",
        "dead",
        "Given up; a person decides. D keeps such a row as `FAILED`.",
    ),
    ("`NEW` (D), `new` (E)", "pending", "Not claimed yet."),
    ("`processing` (E)", "sending", "A relay has it in flight."),
    ("`failed` with a next time", "failed", "Waits for its next try. The word is the same in B, C and E."),
    ("台帳, `idempo_ledger` (B)", "ledger", "Keeps the answer to a request under its idempotency key. Not built yet."),
    ("幂等キー, `idempotency_key` (B), 멱등성 (C)", "idempotency key", "A name for an effect that may happen once."),
    ("`request_digest` (B), `request_hash` (D)", "digest", "A fingerprint of the type and the body."),
    ("Worker, ワーカー (B), Relay 서버 (C), `worker_id` (E)", "relay", "Claims messages, publishes and settles them."),
    (
        "Consumer (A, D), 컨슈머 (C)",
        "inbox worker",
        "Receives deliveries and calls handlers. The *consumer* is its name in the inbox.",
    ),
    (
        "`locked_by`, `locked_at` (B), `lease_owner`, `lease_until` (E)",
        "owner and lease of a lane",
        "A relay leases lanes, not rows.",
    ),
    ("心拍 (B)", "heartbeat", "Renews the leases of all lanes of a relay at once."),
    ("`next_attempt_at` (A, D), `next_run_at` (B), `next_retry_at` (C, E)", "`due_at`", "Not sent earlier."),
    ("`published_at`", "`settled_at`", "Also set for dead, expired and discarded messages."),
    ("`aggregate_id` (A, C, D, E)", "key", "Order is kept per key."),
    ("`aggregate_type` (A, C, D)", "aggregate", "What kind of thing the key names."),
    ("`event_id`, `eventId`, `outbox_id`", "id", "Of the message; the same at each try and in the inbox."),
    ("`stream` (E)", "route", "Chosen by the beginning of the type, such as `wiki.*`."),
    ("`markAsPublished`, `mark_succeeded`, commit", "settle", "Writes the outcome of a batch down."),
    ("`moveToDeadLetter`, `mark_aborted`", "bury", "Makes a message dead."),
    ("再キュー (B)", "requeue", "A person lets a dead message go again, with no attempts made."),
    ("リース失効 (B), протухшие leases (E)", "lease that ran out", "Another relay may take the lane over."),
    ("`processed_events` (D), processed set (A, C)", "inbox", "The table of what a consumer handled."),
    ("バックオフ再送 (B), 지수 백오프 (C)", "backoff", "The wait before the next try."),
    ("補償 (A)", "undo", "A step of a saga that takes another back. Not built yet."),
    ("業務エラー (A)", "business error", "The data or the rules are against it; another try changes nothing."),
    ("Cleanup (C), retention (D)", "purge", "Deletes what was published long ago. Not built yet as a command."),
    ("CDC, WAL, Debezium", "log relay", "Reads the database's log instead of its tables. Not built yet."),
    ("периодический reconciler (E)", "reconciler", "Finds records whose message is missing."),
]
"""What the documents call a thing, what we call it, and what that means."""
