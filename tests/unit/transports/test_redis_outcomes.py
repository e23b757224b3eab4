"""What the server says is told apart: the message's fault, the stream's, the server's."""

from __future__ import annotations

import pytest
from redis.exceptions import NoPermissionError, OutOfMemoryError, ReadOnlyError, ResponseError

from postroom.contracts.transport import Failed, Outcome, Rejected, Unavailable
from postroom.transports.redis_streams.outcomes import code_of, is_of_the_server, outcome_of, ran_nothing, told


@pytest.mark.parametrize(
    ("said", "kind", "code"),
    [
        ("WRONGTYPE Operation against a key", Rejected, "WRONG_TYPE"),
        ("UNROUTABLE", Rejected, "UNROUTABLE"),
        ("NOPERM No permissions to access a key", Failed, "NOT_AUTHORIZED"),
        ("ERR ACL failure in script: No permissions to access a key", Failed, "NOT_AUTHORIZED"),
        ("ERR Elements are too large to be stored", Rejected, "PAYLOAD_TOO_LARGE"),
        ("ERR Protocol error: invalid bulk length", Rejected, "PAYLOAD_TOO_LARGE"),
        ("ERR something new", Failed, "REFUSED"),
        ("OOM command not allowed", Unavailable, "OUT_OF_MEMORY"),
        ("READONLY You can't write against a read only replica.", Unavailable, "READONLY"),
        ("MISCONF Errors writing to the AOF file: No space left on device", Unavailable, "MISCONF"),
        ("NOREPLICAS Not enough good replicas to write.", Unavailable, "NOREPLICAS"),
        ("LOADING server is loading the dataset in memory", Unavailable, "LOADING"),
        ("BUSY server is busy running a script", Unavailable, "BUSY"),
        ("MOVED 3999 127.0.0.1:6381", Unavailable, "MOVED"),
        ("NOAUTH Authentication required.", Unavailable, "AUTHENTICATION_FAILED"),
        ("ERR unknown command 'EVALSHA'", Unavailable, "NO_SCRIPTS"),
    ],
)
def test_an_answer_becomes_an_outcome(said: str, kind: type[Outcome], code: str) -> None:
    outcome = outcome_of(said, "orders", of_the_url=False)
    assert isinstance(outcome, kind)
    assert getattr(outcome, "code", None) == code


@pytest.mark.parametrize("said", ["WRONGTYPE x", "UNROUTABLE", "NOPERM x"])
def test_trouble_with_the_urls_own_stream_is_the_routes_and_concerns_no_other_stream(said: str) -> None:
    outcome = outcome_of(said, "orders", of_the_url=True)
    assert isinstance(outcome, Unavailable)
    assert not is_of_the_server(outcome)


def test_trouble_of_the_server_is_everybodys() -> None:
    assert is_of_the_server(outcome_of("OOM command not allowed", "orders", of_the_url=False))


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ResponseError("WRONGTYPE Operation"), "WRONGTYPE", "WRONGTYPE Operation"),
        (ResponseError("something else"), "ERR", "ERR something else"),
        (OutOfMemoryError("command not allowed"), "OOM", "OOM command not allowed"),
        (ReadOnlyError("You can't write"), "READONLY", "READONLY You can't write"),
        (NoPermissionError("No permissions"), "NOPERM", "NOPERM No permissions"),
    ],
)
def test_a_code_that_the_client_took_off_is_put_back(error: Exception, code: str, text: str) -> None:
    assert (code_of(error), told(error)) == (code, text)


def test_a_script_that_failed_in_its_middle_may_have_written() -> None:
    assert not ran_nothing("ERR user_script:7: too many results to unpack")
    assert ran_nothing("NOPERM No permissions to access a key")
    assert ran_nothing("LOADING server is loading the dataset in memory")
