"""What SQS says, and what is said of the message."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
    SSLError,
)

from postroom.contracts.transport import Failed, Rejected, Unavailable
from postroom.transports.sqs.outcomes import of_entry, of_request

PLACE = {"endpoint_url": "http://127.0.0.1:5000"}


def answer(code: str, status: int = 400) -> ClientError:
    facts: Any = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(facts, "SendMessageBatch")


@pytest.mark.parametrize(
    ("error", "own_queue", "urls_queue"),
    [
        (answer("AWS.SimpleQueueService.NonExistentQueue"), (Rejected, "UNROUTABLE"), (Unavailable, "UNROUTABLE")),
        (answer("QueueDoesNotExist"), (Rejected, "UNROUTABLE"), (Unavailable, "UNROUTABLE")),
        (answer("AccessDenied", 403), (Failed, "NOT_AUTHORIZED"), (Unavailable, "NOT_AUTHORIZED")),
        (answer("KMS.DisabledException"), (Failed, "NOT_AUTHORIZED"), (Unavailable, "NOT_AUTHORIZED")),
        (answer("SomethingNew", 403), (Failed, "NOT_AUTHORIZED"), (Unavailable, "NOT_AUTHORIZED")),
        (answer("SomethingNew"), *[(Failed, "SomethingNew")] * 2),
        (answer("KMS.ThrottlingException"), *[(Unavailable, "THROTTLED")] * 2),
        (answer("KmsDisabled"), (Failed, "NOT_AUTHORIZED"), (Unavailable, "NOT_AUTHORIZED")),
        (answer("InvalidClientTokenId", 403), *[(Unavailable, "NOT_AUTHORIZED")] * 2),
        (answer("RequestThrottled"), *[(Unavailable, "THROTTLED")] * 2),
        (answer("whatever", 429), *[(Unavailable, "THROTTLED")] * 2),
        (answer("ServiceUnavailable", 503), *[(Unavailable, "UNAVAILABLE")] * 2),
        (answer("InternalFailure", 500), *[(Failed, "InternalFailure")] * 2),
        (answer("InvalidMessageContents"), *[(Rejected, "InvalidMessageContents")] * 2),
        (EndpointConnectionError(**PLACE), *[(Unavailable, "CONNECT_FAILED")] * 2),
        (ConnectTimeoutError(**PLACE), *[(Unavailable, "CONNECT_FAILED")] * 2),
        (SSLError(**PLACE, error="bad"), *[(Unavailable, "TLS_FAILED")] * 2),
        (NoCredentialsError(), *[(Unavailable, "NO_CREDENTIALS")] * 2),
        (ConnectionClosedError(**PLACE), *[(Failed, "CONNECTION_BROKEN")] * 2),
        (ReadTimeoutError(**PLACE), *[(Failed, "CONNECTION_BROKEN")] * 2),
        (TimeoutError(), *[(Failed, "TIMEOUT")] * 2),
    ],
    ids=str,
)
def test_a_request_that_failed_says_what_became_of_its_messages(
    error: Exception, own_queue: tuple[type, str], urls_queue: tuple[type, str]
) -> None:
    for of_the_url, expected in ((False, own_queue), (True, urls_queue)):
        outcome = of_request(error, "orders", of_the_url=of_the_url)
        assert (type(outcome), getattr(outcome, "code", None)) == expected


@pytest.mark.parametrize(
    "error", [answer("InternalFailure", 500), ConnectionClosedError(**PLACE), TimeoutError()], ids=str
)
def test_where_the_answer_is_missing_nobody_knows_whether_it_arrived(error: Exception) -> None:
    outcome = of_request(error, "orders", of_the_url=True)
    assert isinstance(outcome, Failed)
    assert outcome.unknown


def test_what_is_no_answer_of_a_broker_is_no_outcome() -> None:
    with pytest.raises(ZeroDivisionError):
        of_request(ZeroDivisionError(), "orders", of_the_url=True)


def test_an_entry_that_is_the_senders_fault_is_rejected_and_any_other_failed() -> None:
    failure = {"Id": "1", "Code": "InvalidMessageContents", "Message": "bad", "SenderFault": True}
    assert of_entry(failure) == Rejected("InvalidMessageContents", "bad")
    assert of_entry(failure | {"SenderFault": False, "Code": "InternalError"}) == Failed("InternalError", "bad")
    denied = of_entry(failure | {"Code": "AccessDenied"})
    assert isinstance(denied, Failed), "a right can be given, and then it works"


def test_an_entry_that_was_too_much_waits_a_little_and_costs_no_attempt() -> None:
    outcome = of_entry({"Id": "1", "Code": "RequestThrottled", "SenderFault": True})
    assert isinstance(outcome, Unavailable)
    assert outcome.retry_after
    busy = of_entry({"Id": "1", "Code": "ServiceUnavailable", "SenderFault": False})
    assert isinstance(busy, Unavailable)
