"""Runs moto's server on a port, made to judge as AWS does where moto is more lenient: `python moto_like_aws.py PORT`.

- A receipt handle is good as long as its message is in flight under it. Moto lets any handle that a message ever had hide it
  again, or delete it; AWS refuses with MessageNotInflight, and on a FIFO queue says that the handle has expired.
- An entry of a batch is judged by itself: too large, with a character that is none of XML's, or with a group id that may not
  be. Moto refuses the whole request for the first, and takes the others.
- A group of a FIFO queue waits for its first message. When the time of several has run out together, moto gives out the last of
  them first; two polls at a time may get the same message; and a poll that finds only groups in flight never rests.
- What is sent while another deletes is kept. Moto makes its list anew for every deletion, without a lock, and forgets what came
  into the old one meanwhile: three of ten thousand, on a busy machine.
- How many messages a queue has is not told. Moto counts them anew, several times for each message that is sent, and gets
  slow with a few hundred.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from moto.core.utils import camelcase_to_underscores
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.sqs.exceptions import InvalidParameterValue, SQSException
from moto.sqs.models import Message, Queue, SQSBackend, _filter_message_attributes
from werkzeug.serving import run_simple

REFUSED = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
GROUP = re.compile(r"""[A-Za-z0-9!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}""")
LOOK_SECONDS = 0.01


class MessageNotInflight(SQSException):
    def __init__(self) -> None:
        super().__init__("AWS.SimpleQueueService.MessageNotInflight", "The message referred to isn't in flight.")


def in_flight(queue: Queue, handle: str) -> Message | None:
    return next((each for each in queue._messages if each.receipt_handle == handle and not each.visible), None)


def change_message_visibility(
    backend: SQSBackend, queue_name: str, receipt_handle: str, visibility_timeout: int
) -> None:
    queue = backend.get_queue(queue_name)
    with queue._messages_lock:
        if in_flight(queue, receipt_handle) is None:
            raise MessageNotInflight
        its_change(backend, queue_name, receipt_handle, visibility_timeout)


def change_message_visibility_batch(
    backend: SQSBackend, queue_name: str, entries: list[dict[str, Any]]
) -> tuple[list[str], list[dict[str, Any]]]:
    done: list[str] = []
    failed: list[dict[str, Any]] = []
    for entry in entries:
        try:
            change_message_visibility(backend, queue_name, entry["ReceiptHandle"], int(entry["VisibilityTimeout"]))
            done.append(entry["Id"])
        except SQSException as error:
            failed.append(refusal(entry["Id"], error))
    return done, failed


def delete_message_batch(
    backend: SQSBackend, queue_name: str, receipts: list[dict[str, Any]]
) -> tuple[list[str], list[dict[str, Any]]]:
    queue = backend.get_queue(queue_name)
    done: list[str] = []
    failed: list[dict[str, Any]] = []
    for receipt in receipts:
        handle = receipt["ReceiptHandle"]
        try:
            with queue._messages_lock:
                if queue.fifo_queue and handle not in queue.deleted_messages and in_flight(queue, handle) is None:
                    raise InvalidParameterValue(
                        "Value for parameter ReceiptHandle is invalid. The receipt handle has expired."
                    )
                backend.delete_message(queue_name, handle)
            done.append(receipt["Id"])
        except SQSException as error:
            failed.append(refusal(receipt["Id"], error))
    return done, failed


def send_message_batch(
    backend: SQSBackend, queue_name: str, entries: dict[str, dict[str, Any]]
) -> tuple[list[Message], list[dict[str, Any]]]:
    queue = backend.get_queue(queue_name)
    failed = [refusal(entry["Id"], error) for entry in entries.values() if (error := judged(queue, entry)) is not None]
    refused = {each["Id"] for each in failed}
    taken = {number: entry for number, entry in entries.items() if entry["Id"] not in refused}
    with queue._messages_lock:
        sent, more = its_send(backend, queue_name, taken)
    return sent, failed + more


def judged(queue: Any, entry: dict[str, Any]) -> SQSException | None:
    group = entry.get("MessageGroupId")
    if REFUSED.search(entry["MessageBody"]):
        return SQSException("InvalidMessageContents", "Invalid characters found.")
    if group is not None and not GROUP.fullmatch(group):
        return InvalidParameterValue(f"Value {group} for parameter MessageGroupId is invalid.")
    if size_of(entry) > queue.maximum_message_size:
        return InvalidParameterValue(f"Message must be shorter than {queue.maximum_message_size} bytes.")
    return None


def size_of(entry: dict[str, Any]) -> int:
    attributes = entry["MessageAttributes"].items()
    return len(entry["MessageBody"].encode()) + sum(
        len(name) + len(value["DataType"]) + len(value["StringValue"].encode()) for name, value in attributes
    )


def refusal(number: str, error: SQSException) -> dict[str, Any]:
    return {"Id": number, "SenderFault": True, "Code": error.code, "Message": error.message}


def receive_message(
    backend: SQSBackend,
    queue_name: str,
    count: int,
    wait_seconds_timeout: int,
    visibility_timeout: int,
    message_attribute_names: list[str] | None = None,
) -> list[Message]:
    until = time.monotonic() + wait_seconds_timeout
    while True:
        queue = backend.get_queue(queue_name)
        with queue._messages_lock:
            taken = [deepcopy(each) for each in take(queue, count, visibility_timeout)]
        if taken or time.monotonic() >= until:
            for each in taken:
                _filter_message_attributes(each, message_attribute_names or [])
            return taken
        time.sleep(LOOK_SECONDS)


def take(queue: Any, count: int, seconds: int) -> Iterator[Message]:
    """Up to so many that are in nobody's hand, nor is any other of their group."""
    busy = {each.group_id for each in queue._messages if queue.fifo_queue and not each.visible}
    for message in [each for each in queue._messages if each.visible and not each.delayed]:
        if message.group_id in busy and queue.fifo_queue:
            continue
        if queue.redrive_policy and message.approximate_receive_count >= queue.redrive_policy["maxReceiveCount"]:
            queue._messages.remove(message)
            queue.dead_letter_queue.add_message(message)
            continue
        message.mark_received(visibility_timeout=seconds)
        yield message
        count -= 1
        if not count:
            return


def attributes(queue: Any) -> dict[str, Any]:
    names = [name for name in Queue.BASE_ATTRIBUTES if not name.startswith("Approximate")]
    names += Queue.FIFO_ATTRIBUTES if queue.fifo_queue else []
    told = {name: getattr(queue, camelcase_to_underscores(name)) for name in names}
    told["RedrivePolicy"] = json.dumps(queue.redrive_policy) if queue.redrive_policy else None
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in told.items()}


its_send, its_change = SQSBackend.send_message_batch, SQSBackend.change_message_visibility
for name in (
    "send_message_batch",
    "receive_message",
    "change_message_visibility",
    "change_message_visibility_batch",
    "delete_message_batch",
):
    setattr(SQSBackend, name, globals()[name])
Queue.attributes = property(attributes)  # type: ignore[assignment]

if __name__ == "__main__":
    app = DomainDispatcherApplication(create_backend_app)
    run_simple("127.0.0.1", int(sys.argv[1]), app, threaded=True, request_handler=MotoRequestHandler)
