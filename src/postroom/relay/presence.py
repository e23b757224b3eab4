"""Whether the process of another relay is gone for good, as only a process on the same machine can tell.

A relay writes down which process it is. Another one, that sees the same processes, may find that it is there no more: then
it never acts again, and its lanes need not wait for their lease (R5). Whatever cannot be proved counts as alive.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from postroom.contracts.lanes import RelayInfo

BOOT = Path("/proc/sys/kernel/random/boot_id")
NAMESPACES = (Path("/proc/self/ns/pid"), Path("/proc/self/ns/time"))
"""What decides which processes we see under which number, and how their time of start reads."""
START = 19
"""The place of a process's start among the fields of /proc/PID/stat after its name: field 22 of all."""


class Unseen(Enum):
    """What is known of a process that has no time of start."""

    ABSENT = "there is no such process"
    UNKNOWN = "it cannot be told"


Start: TypeAlias = str | Unseen
"""When a process began, in ticks since the machine did."""


def is_gone(relay: RelayInfo, here: str, start_of: Callable[[int], Start]) -> bool:
    """Is it certain that this relay's process is no more? *here* is where we are: `place()`.

    The same start of the machine, the same namespaces; and no process has its number, or one that began at another time."""
    place, _, start = relay.process.rpartition(" ")
    if not here or not place or place != here or relay.pid <= 0:
        return False
    found = start_of(relay.pid)
    return found is Unseen.ABSENT or (found is not Unseen.UNKNOWN and found != start)


def gone_among(relays: Iterable[RelayInfo]) -> frozenset[str]:
    """The owners among these relays whose process is certainly no more, as far as this process can tell."""
    here = place()
    return frozenset(relay.owner for relay in relays if is_gone(relay, here, start_of))


def process() -> str:
    """Which process this is: where, and since when. Empty where that cannot be told."""
    here = place()
    start = start_of(os.getpid()) if here else Unseen.UNKNOWN
    return f"{here} {start}" if isinstance(start, str) else ""


def place() -> str:
    """The start of this machine and the namespaces we are in. Empty where that cannot be told: not on Linux, or no /proc, or
    one that shows other processes than ours."""
    try:
        if int(Path("/proc/self/stat").read_bytes().split()[0]) != os.getpid():
            return ""
        boot = BOOT.read_text(encoding="ascii").strip()
        spaces = [str(each.readlink()) for each in NAMESPACES if each.is_symlink()]
        return " ".join([boot, *spaces]) if boot and spaces else ""
    except (OSError, ValueError):
        return ""


def start_of(pid: int) -> Start:
    """When the process of this number began. Only for whoever has a place: elsewhere its question may be an order."""
    try:
        # Not by /proc, where an administrator may hide the processes of others.
        os.kill(pid, 0)
    except ProcessLookupError:
        return Unseen.ABSENT
    except (OSError, OverflowError):
        pass  # it is there, and not ours
    try:
        # The name, in brackets, may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return fields[START].decode()
    except (OSError, IndexError):
        return Unseen.UNKNOWN
