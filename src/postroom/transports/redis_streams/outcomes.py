"""What the server's answer means for the message. Pure."""

from __future__ import annotations

import re

from postroom.contracts.transport import Failed, Outcome, Rejected, Unavailable
from postroom.transports.refusals import why_not

NO_TOPIC = Rejected("NO_TOPIC", "neither the message, nor its route, nor the URL names a stream")
MISSING = "UNROUTABLE"
"""What the script says of a stream that is not there and may not be made."""
STOPPED = "STOPPED"
"""What it says of a message behind one of its key that failed."""

_CODE = re.compile(r"[A-Z][A-Z0-9]{2,}(?= |\Z)")
_BY_CLASS = {
    "AuthenticationError": "NOAUTH",
    "AuthorizationError": "NOPERM",
    "BusyLoadingError": "LOADING",
    "MasterDownError": "MASTERDOWN",
    "NoPermissionError": "NOPERM",
    "NoScriptError": "NOSCRIPT",
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
}
"""redis-py takes the code off a text that it knows; only the newest keep it elsewhere."""

_OF_THE_SERVER = {
    "OOM": ("OUT_OF_MEMORY", "its memory is full"),
    "READONLY": ("READONLY", "it is a replica"),
    "MISCONF": ("MISCONF", "it cannot write to its disk"),
    "NOREPLICAS": ("NOREPLICAS", "it has too few replicas"),
    "LOADING": ("LOADING", "it is still reading its data"),
    "MASTERDOWN": ("MASTERDOWN", "it is a replica without a primary"),
    "BUSY": ("BUSY", "a script of another client holds it up"),
    "CLUSTERDOWN": ("CLUSTERDOWN", "its cluster is down"),
    "MOVED": ("MOVED", "it is a node of a cluster, and the stream is on another"),
    "CROSSSLOT": ("CROSSSLOT", "it is a node of a cluster, and the streams are on several"),
    "NOAUTH": ("AUTHENTICATION_FAILED", "it wants a user and a password"),
    "WRONGPASS": ("AUTHENTICATION_FAILED", "it does not know our user or password"),
}
"""Trouble of the server: nothing was written, and no message is to blame."""
_NAMES = {name for name, _ in _OF_THE_SERVER.values()}


def code_of(error: BaseException, otherwise: str = "ERR") -> str:
    """The server's word for an error, such as WRONGTYPE."""
    if code := getattr(error, "status_code", None):
        return str(code)
    if code := _BY_CLASS.get(type(error).__name__):
        return code
    match = _CODE.match(str(error))
    return match[0] if match else otherwise


def why_away(error: BaseException) -> str:
    """The code for a server that cannot be reached, or does not want us."""
    code = code_of(error)
    if code == "NOPERM":
        return "NOT_AUTHORIZED"
    if code in _OF_THE_SERVER:
        return _OF_THE_SERVER[code][0]
    return why_not(error) or ("AUTHENTICATION_FAILED" if "AUTH" in str(error) else "CONNECT_FAILED")


def told(error: BaseException) -> str:
    """The whole text of an error that the server told, its code first."""
    code, text = code_of(error), str(error)
    return text if text.startswith(code) else f"{code} {text}"


def outcome_of(said: str, stream: str, *, of_the_url: bool) -> Outcome:
    """What became of a message that the server did not add to *stream*, by what it said.

    Trouble with the stream that the URL names is trouble with the route: it says nothing of the message, so it waits."""
    code = said.partition(" ")[0]
    if code in _OF_THE_SERVER:
        name, why = _OF_THE_SERVER[code]
        return Unavailable(name, f"{why} ({said})")
    if code == MISSING:
        sentence = f"there is no stream {stream!r}, and create=off"
        return Unavailable(MISSING, sentence) if of_the_url else Rejected(MISSING, sentence)
    if code == "WRONGTYPE":
        sentence = f"{stream!r} is not a stream ({said})"
        return Unavailable("WRONG_TYPE", sentence) if of_the_url else Rejected("WRONG_TYPE", sentence)
    if code == "NOPERM" or "ACL failure" in said:
        sentence = f"we may not write to {stream!r} ({said})"
        return Unavailable("NOT_AUTHORIZED", sentence) if of_the_url else Failed("NOT_AUTHORIZED", sentence)
    if "unknown command" in said:
        return Unavailable("NO_SCRIPTS", f"it runs no scripts ({said})")
    if "too large" in said or "invalid bulk length" in said:
        return Rejected("PAYLOAD_TOO_LARGE", said)
    return Failed("REFUSED", said)


def ran_nothing(said: str) -> bool:
    """Was the script refused before it began, so that nothing was written?"""
    code = said.partition(" ")[0]
    return code in _OF_THE_SERVER or code == "NOPERM" or "Protocol error" in said or "unknown command" in said


def is_of_the_server(outcome: Outcome) -> bool:
    """Would every other message meet the same?"""
    return isinstance(outcome, Unavailable) and outcome.code in _NAMES


def too_large(size: int, largest: int) -> Rejected:
    """Said before it is sent: the server would hang up, and everybody else's answers with it."""
    return Rejected("PAYLOAD_TOO_LARGE", f"the body has {size} bytes, the server takes {largest}")


def short_of(replicas: int, wanted: int) -> Failed:
    """WAIT told a smaller number."""
    return Failed("NOT_REPLICATED", f"{replicas} of {wanted} replicas have it", unknown=True)


NOT_ON_DISK = Failed("NOT_ON_DISK", "the server's append-only file does not have it yet", unknown=True)
