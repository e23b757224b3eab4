"""What an answer of SQS means for the message, or for all of a request. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    NoAuthTokenError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    ProxyConnectionError,
    SSLError,
    TokenRetrievalError,
)

from postroom.contracts.transport import Failed, Outcome, Rejected, Unavailable

NO_TOPIC = Rejected("NO_TOPIC", "neither the message, nor its route, nor the URL names a queue")
UNANSWERED = Failed("TIMEOUT", "no answer in time", unknown=True)
NOT_NAMED = Failed("NO_ANSWER", "the answer does not name it", unknown=True)
PAUSE = timedelta(seconds=1)
"""So long is waited after SQS said that it was too much: it says no time itself."""

NO_SUCH_QUEUE = {"QueueDoesNotExist", "NonExistentQueue", "InvalidAddress"}
_REFUSED = {
    "BatchRequestTooLong",
    "InvalidAttributeName",
    "InvalidAttributeValue",
    "InvalidMessageContents",
    "InvalidParameterValue",
    "MissingParameter",
    "UnsupportedOperation",
}
"""What is wrong with the message itself, and stays so."""
NOT_ALLOWED = {"AccessDenied", "AccessDeniedException", "KmsAccessDenied"}
_KEY_IS_AWAY = {"KmsDisabled", "KmsInvalidKeyUsage", "KmsInvalidState", "KmsNotFound", "KmsOptInRequired"}
WHO_ARE_YOU = {
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "NotSignedUp",
    "OptInRequired",
    "RequestExpired",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
_TOO_MUCH = {
    "BandwidthLimitExceeded",
    "KmsThrottled",
    "KmsThrottling",
    "OverLimit",
    "PriorRequestNotComplete",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
_BUSY = {"ServiceUnavailable", "ServiceUnavailableException"}
NO_CREDENTIALS = (
    CredentialRetrievalError,
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    TokenRetrievalError,
)
_NOT_CONNECTED = (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError)
FORBIDDEN, TOO_MANY, SERVER_ERROR, UNAVAILABLE = 403, 429, 500, 503


def code_of(error: ClientError) -> str:
    """SQS's own word for it, without what older protocols put before it."""
    facts: Mapping[str, Any] = error.response.get("Error", {})
    return _plain(str(facts.get("QueryErrorCode") or facts.get("Code", "")))


def said_of(error: ClientError) -> str:
    """SQS's own sentence."""
    return str(error.response.get("Error", {}).get("Message", "")) or str(error)


def is_throttle(code: str) -> bool:
    """Was it too much at once?"""
    return code in _TOO_MUCH


def of_entry(failure: Mapping[str, Any]) -> Outcome:
    """What became of one message of a batch that SQS names among the failed. The others were sent all the same."""
    code, said = _plain(str(failure.get("Code", ""))), str(failure.get("Message", ""))
    if is_throttle(code):
        return Unavailable("THROTTLED", said or code, retry_after=PAUSE)
    if code in _BUSY:
        return Unavailable("UNAVAILABLE", said or code)
    if failure.get("SenderFault") and code not in NOT_ALLOWED | _KEY_IS_AWAY:
        return Rejected(code, said)
    return Failed(code, said)


def of_request(error: BaseException, queue: str, *, of_the_url: bool) -> Outcome:
    """What became of every message of a request that failed as a whole.

    Trouble with the queue that the URL names is trouble with the route: it says nothing of the message, so it waits."""
    if isinstance(error, TimeoutError):
        return UNANSWERED
    if isinstance(error, NO_CREDENTIALS):
        return Unavailable("NO_CREDENTIALS", str(error))
    if isinstance(error, SSLError):
        return Unavailable("TLS_FAILED", str(error))
    if isinstance(error, _NOT_CONNECTED):
        return Unavailable("CONNECT_FAILED", str(error))
    if isinstance(error, ParamValidationError):
        return Rejected("INVALID_MESSAGE", str(error))
    if isinstance(error, ClientError):
        return _of_answer(error, queue, of_the_url=of_the_url)
    if isinstance(error, (ConnectionClosedError, HTTPClientError, BotoCoreError, OSError)):
        return Failed("CONNECTION_BROKEN", str(error) or type(error).__name__, unknown=True)
    raise error


def _of_answer(error: ClientError, queue: str, *, of_the_url: bool) -> Outcome:
    code, said = code_of(error), said_of(error)
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in NO_SUCH_QUEUE:
        sentence = f"there is no queue {queue!r} ({said})"
        return Unavailable("UNROUTABLE", sentence) if of_the_url else Rejected("UNROUTABLE", sentence)
    if code in WHO_ARE_YOU:
        return Unavailable("NOT_AUTHORIZED", f"{code}: {said}")
    if code in NOT_ALLOWED | _KEY_IS_AWAY or status == FORBIDDEN:
        sentence = f"we may not write to {queue!r} ({said})"
        return Unavailable("NOT_AUTHORIZED", sentence) if of_the_url else Failed("NOT_AUTHORIZED", sentence)
    if is_throttle(code) or status == TOO_MANY:
        return Unavailable("THROTTLED", said, retry_after=PAUSE)
    if status == UNAVAILABLE:
        return Unavailable("UNAVAILABLE", said)
    if status >= SERVER_ERROR:
        return Failed(code, said, unknown=True)
    # An answer that we do not know may be true today and not tomorrow.
    return Rejected(code, said) if code in _REFUSED else Failed(code, said)


def may_be_of_one(outcome: Outcome) -> bool:
    """Was the request refused, so that one message in it may be the reason, and the others can go?"""
    if isinstance(outcome, Failed):
        return not outcome.unknown and outcome.code != "NOT_AUTHORIZED"
    return isinstance(outcome, Rejected) and outcome.code != "UNROUTABLE"


def _plain(code: str) -> str:
    """AWS.SimpleQueueService.NonExistentQueue is NonExistentQueue, and KMS.DisabledException is KmsDisabled."""
    service, _, name = code.rpartition(".")
    return f"Kms{name.removesuffix('Exception')}" if service == "KMS" else name or "UNKNOWN"
