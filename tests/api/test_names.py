"""What `postroom` offers: a promise, so it is pinned."""

from __future__ import annotations

import subprocess
import sys

import postroom

NAMES = {
    "ConfigError",
    "Consumer",
    "DuplicateMessage",
    "InvalidMessage",
    "Limits",
    "Message",
    "MissingDependency",
    "NotInTransaction",
    "Inbox",
    "RejectMessage",
    "RetryLater",
    "Outbox",
    "InboxWorker",
    "open_consumer",
    "PostroomError",
    "Publisher",
    "Relay",
    "RelayConfig",
    "RetryPolicy",
    "Route",
    "SchemaMismatch",
    "Settings",
    "Store",
    "StoreUnavailable",
    "TableNames",
    "UnknownHandle",
    "open_store",
    "open_publisher",
    "open_waker",
}


def test_the_public_names_are_these() -> None:
    assert set(postroom.__all__) == NAMES


def test_every_public_name_is_there() -> None:
    for name in NAMES:
        assert getattr(postroom, name) is not None


def test_every_public_name_says_what_it_is() -> None:
    for name in NAMES:
        assert getattr(postroom, name).__doc__


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(postroom, "Postman")


def test_dir_lists_the_public_names_before_they_are_loaded() -> None:
    """What completion in an editor or a shell goes by. In a process of its own: here all of them are loaded."""
    run = subprocess.run(
        [sys.executable, "-c", "import postroom; print(*dir(postroom))"], capture_output=True, text=True, check=True
    )
    assert set(run.stdout.split()) >= NAMES
