"""The codes of errors: what each means, and what to do. They are in `last_error_code`, in events, and in `postroom explain`.

A code says what became of a message; the error adds the words of the broker or the handler. Besides these there are the
broker's own: `HTTP_` and a status, `NATS_` and a number, and the names that Kafka and SQS give their errors. A redirect
(`HTTP_3xx`) is never followed: the URL is to be fixed. A handler's `RejectMessage`, `RetryLater` and `ErrorClass` bring
codes of yours.
"""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """What a code means, and what to do about it; nothing, where it passes by itself."""

    means: str
    remedy: str = ""


WAITS = "it is tried again by itself"
AWAY = "see that the broker runs and can be reached"

RELAY = {
    "MAX_ATTEMPTS": Code("it failed at every try; see its last error", "fix the cause, then requeue"),
    "CRASH_LOOP": Code(
        "each time it was sent or handled the process died", "find out why, then requeue: it goes alone"
    ),
    "LEASE_LOST": Code("it was in flight when its relay died or lost its lease", WAITS),
    "NO_ROUTE": Code("no route fits its type; it was not sent", "add a route, restart the relays, then requeue"),
    "CORRUPT_PAYLOAD": Code("its body is not the JSON it says it is", "discard it, and put a right one"),
    "EXPIRED": Code("its time was over before it was sent"),
    "ROUTE_PAUSED": Code("its broker is away", AWAY),
    "ROUTE_SHUT": Code(
        "its route is shut until a person acts", "fix the route, or take it out, then restart the relay"
    ),
    "TRANSPORT_ERROR": Code("the transport raised an error of its own", "report it, with its error"),
    "KEY_STOPPED": Code("an earlier message of its key was not sent", WAITS),
    "NOT_STARTED": Code("the time was up before its turn", WAITS),
}
"""What the relay says of a message."""

REFUSED = {
    "UNROUTABLE": Code("there is no such topic, queue, stream or subject", "create it, or fix the route; then requeue"),
    "NO_TOPIC": Code("neither the message, nor its route, nor the URL says where to", "name a topic, then requeue"),
    "PAYLOAD_TOO_LARGE": Code("it is larger than the broker takes", "raise the broker's limit and requeue, or discard"),
    "HEADERS_TOO_LARGE": Code("its headers are larger than the broker takes", "discard it, and put one with fewer"),
    "ROUTING_KEY_TOO_LONG": Code("its routing key has over 255 bytes", "discard it, and put one with a shorter topic"),
    "INVALID_MESSAGE": Code("it cannot be written the way this broker wants it", "discard it, and put a right one"),
    "INVALID_SUBJECT": Code("its topic is not a NATS subject", "fix the topic or the route, then requeue"),
    "INVALID_URL": Code("its topic makes no URL", "fix the topic or the route, then requeue"),
    "SSRF_BLOCKED": Code("the URL leads to an address that is not public", "fix the URL, or allow it: `public_only`"),
    "WRONG_TYPE": Code("the Redis key of that name is not a stream", "choose another name, then requeue"),
    "PRECONDITION_FAILED": Code("the broker refused it; see its error", "fix the cause, then requeue"),
}
"""Why a message as it is will never be taken. It is dead at once, unless the URL is to blame: then it waits."""

FAILED = {
    "TIMEOUT": Code("no answer came in time; it may have arrived", WAITS),
    "NO_ANSWER": Code("the answer does not name it; it may have arrived", WAITS),
    "CANCELLED": Code("sending it was cut off; it may have arrived", WAITS),
    "CONNECTION_BROKEN": Code("the connection broke before the answer; it may have arrived", WAITS),
    "CONNECTION_LOST": Code("the connection broke before the answer; it may have arrived", WAITS),
    "CHANNEL_CLOSED": Code("RabbitMQ closed the channel; it may have arrived", WAITS),
    "NOT_AUTHORIZED": Code("we may not write there", "give the user the right to"),
    "PRODUCER_STOPPED": Code("it was with others when sending had to stop; it may have arrived", WAITS),
    "REFUSED": Code("Redis refused it; see its error", "fix the cause"),
    "SCRIPT_FAILED": Code("Redis stopped in the middle; it may have arrived", WAITS),
    "NOT_REPLICATED": Code("too few replicas have it yet; it did arrive", "see to the replicas"),
    "NOT_ON_DISK": Code("it is not in the append-only file yet; it did arrive", "see that AOF is on"),
    "HANDLER_ERROR": Code("your function or handler raised an error", "fix it; it is tried again by itself"),
    "HANDLERS_STUCK": Code("your functions hang, and hold every place", "give them a time-out of their own"),
}
"""Why a try failed. It is tried again, until its tries are used up."""

BROKER = {
    "UNAVAILABLE": Code("the broker is away", AWAY),
    "HTTP_401": Code("the receiver does not know who we are", "fix the secret, or the user in the URL"),
    "HTTP_403": Code("the receiver does not let us in", "give our user the right to, or fix the URL"),
    "HTTP_404": Code("there is no such path at the receiver", "fix the URL, or the receiver"),
    "HTTP_407": Code("a proxy on the way asks who we are", "give a URL that needs no proxy"),
    "ENDPOINT_GONE": Code(
        "the receiver answered 410: it is gone for good; its route is shut",
        "fix the URL, or take the route out, then restart the relay",
    ),
    "CLOSED": Code("the publisher is not open", WAITS),
    "CONNECT_FAILED": Code("no connection could be made", AWAY),
    "CONNECT_TIMEOUT": Code("no connection was made in time", AWAY),
    "DNS_FAILED": Code("its name is not known", "fix the URL, or the name server"),
    "TLS_FAILED": Code("the connection could not be encrypted", "see to the certificates"),
    "AUTHENTICATION_FAILED": Code("it does not know our user or password", "fix the URL"),
    "NO_CREDENTIALS": Code("there are no credentials for AWS", "set them up where this process runs"),
    "NOT_ALLOWED": Code("our user may not connect", "give the user the right to"),
    "NO_EXCHANGE": Code("there is no such exchange", "declare it, or fix the URL"),
    "NO_STREAM": Code("there is no such stream", "create it, or fix the URL"),
    "JETSTREAM_AWAY": Code("NATS answers, but its JetStream does not", "see to JetStream"),
    "NO_PRODUCER": Code("the producer could not be made", "fix the URL"),
    "NO_SCRIPTS": Code("this Redis runs no scripts", "take one that does"),
    "UNSAFE": Code("this Redis could lose what it confirmed", "do what its error says"),
    "NOT_CONFIRMED": Code("what was sent before it is not confirmed", WAITS),
    "NO_RESPONDERS": Code("no stream answered for its subject", "see that the stream is there and has a leader"),
    "STREAM_FULL": Code(
        "the stream, or its account, is full and refuses what is new", "see that it is read, or raise its limits"
    ),
    "STREAM_SEALED": Code("the stream is sealed, and takes nothing more", "name another stream in the URL"),
    "NOT_STORED": Code("the stream could not store it", "check the server's disk"),
    "NACKED": Code("a queue is full, or could not store it", "see that the queue is read, or raise its limits"),
    "BLOCKED": Code("RabbitMQ is short of memory or disk, and takes nothing for now", "see to the server"),
    "FULL": Code("the broker in memory has no room", WAITS),
    "NO_LEADER": Code("a partition of Kafka has no leader that can be reached", "see to the brokers"),
    "NOT_ENOUGH_REPLICAS": Code("too few replicas of a partition are in sync", "see to the brokers"),
    "THROTTLED": Code("it was too much at once", "raise the limit there, or send less"),
    "OUT_OF_MEMORY": Code("Redis's memory is full", "give it more, or trim its streams"),
    "READONLY": Code("this Redis is a replica", "name the primary in the URL"),
    "MISCONF": Code("Redis cannot write to its disk", "see to the disk"),
    "NOREPLICAS": Code("Redis has too few replicas", "see to the replicas"),
    "LOADING": Code("Redis is still reading its data", WAITS),
    "MASTERDOWN": Code("this Redis is a replica without a primary", "see to the primary"),
    "BUSY": Code("another holds it up: a script in Redis, or a consumer of the same name", WAITS),
    "CLUSTERDOWN": Code("Redis's cluster is down", "see to the cluster"),
    "MOVED": Code("the stream is on another node of a cluster", "name that node, or a server without a cluster"),
    "CROSSSLOT": Code("the streams are on several nodes of a cluster", "give them one hash tag"),
    "STRAYS": Code("Redis holds messages for us that never came", WAITS),
}
"""What is wrong with the broker, not with the message: the route pauses, and no message spends an attempt."""

INBOX = {
    "NO_EVENT": Code("the delivery is not a CloudEvent: it has no id or no type", "fix the sender"),
    "NO_HANDLER": Code(
        "no handler takes its type, and the inbox gives such messages up", "add a handler, then requeue"
    ),
    "BROKEN_TRANSACTION": Code(
        "the handler ended the transaction, or hid what broke it",
        "fix the handler, check what it has committed, then requeue",
    ),
    "UNFINISHED": Code("its last try has not ended: it is being handled now, or its process died in it", WAITS),
    "HANDLER_TIMEOUT": Code("the handler ran longer than the inbox's `timeout`", "fix it; it is tried again by itself"),
    "UNACCEPTABLE": Code("the handler said that it will never work", "fix the cause and requeue"),
    "RETRY": Code("the handler said: not now", WAITS),
}
"""What an inbox says of a message, besides `MAX_ATTEMPTS`, `CRASH_LOOP`, `CORRUPT_PAYLOAD` and `HANDLER_ERROR`."""

CODES = RELAY | REFUSED | FAILED | BROKER | INBOX
