"""A batch on its way: cut into chunks, each one call of the script that adds messages, and what became of each message. Pure.

The script adds all of a chunk in one go, and of a key none behind one that failed. Behind it stands what the URL wants beside
the server's answer: replicas, a disk. `WAIT` and `WAITAOF` are never errors: they answer how many have it, which may be none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any

from redis.exceptions import RedisError

from postroom.contracts.transport import KEY_STOPPED, NOT_STARTED, Envelope, Failed, Outcome, Rejected, Sent
from postroom.message import Message
from postroom.transports.redis_streams.connection import Word, pack
from postroom.transports.redis_streams.encoding import Words
from postroom.transports.redis_streams.outcomes import (
    MISSING,
    NO_TOPIC,
    NOT_ON_DISK,
    STOPPED,
    is_of_the_server,
    outcome_of,
    short_of,
    told,
    too_large,
)
from postroom.transports.redis_streams.url import RedisUrl

WORDS_MAX = 4_000
"""How many words a message may have: Lua cannot hand more than about 8,000 to one call."""
CHUNK_MAX = 1_000
CHUNK_BYTES = 1024 * 1024
"""So much is one call of the script, during which the server does nothing else. One larger message goes alone."""

SENT = Sent()
UNWRITABLE = (ValueError, TypeError, AttributeError)
"""What packing a message raises that somebody wrote by hand: a lone surrogate, a header that is not a text."""

_ADD = """
local failures, stopped, at, place = {}, {}, 1, 0
local last = #ARGV
while at <= last do
  local key, words = ARGV[at + 1], tonumber(ARGV[at + 2])
  if stopped[key] then
    failures[#failures + 1] = place
    failures[#failures + 1] = '%(stopped)s'
  else
    local added = redis.pcall('XADD', KEYS[tonumber(ARGV[at])], %(how)s'*', unpack(ARGV, at + 3, at + 2 + words))
    if type(added) ~= 'string' then
      failures[#failures + 1] = place
      failures[#failures + 1] = added and added.err or '%(missing)s'
      if key ~= '0' then stopped[key] = true end
    end
  end
  at, place = at + 3 + words, place + 1
end
return failures
"""
"""KEYS: the streams. ARGV, for each message: which stream, its key as a number (0: none), how many words, and the words.
The answer names those that were not added: which, and why."""


@dataclass(slots=True)
class Chunk:
    """What one call of the script is given."""

    places: list[int] = field(default_factory=list)
    streams: dict[str, int] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    words: list[Word] = field(default_factory=list)
    size: int = 0

    def command(self, name: str, script: str) -> list[Word]:
        """`EVALSHA` with the script's name, or `EVAL` with its text."""
        return [name, script, len(self.streams), *self.streams, *self.words]


class Batch:
    """A batch, and its outcomes as far as they are known."""

    def __init__(
        self, batch: Sequence[Envelope], stream: str | None, words_of: Callable[[Message], Words], largest: int
    ) -> None:
        self.outcomes: list[Outcome] = [NOT_STARTED] * len(batch)
        self._batch, self._stream, self._words_of, self._largest = batch, stream, words_of, largest
        self._stopped: set[str] = set()
        """Keys of which a message was not sent."""
        self._runs: deque[Sequence[int]] = deque([range(len(batch))])
        """The places of what is still to be sent; two runs never share a chunk."""

    def take(self) -> Chunk | None:
        """The next chunk; None when nothing is left."""
        while self._runs:
            run = self._runs.popleft()
            chunk, taken = self._fill(run)
            if taken < len(run):
                self._runs.appendleft(run[taken:])
            if chunk.places:
                return chunk
        return None

    def read(self, chunk: Chunk, failures: Sequence[int | bytes]) -> None:
        """What the script answered: all were added but those that it names."""
        for place in chunk.places:
            self.outcomes[place] = SENT
        for number, said in zip(failures[::2], failures[1::2], strict=True):
            self._judge(chunk.places[int(number)], bytes(said).decode(errors="replace"))

    def refuse(self, chunk: Chunk, said: str) -> None:
        """The server did not run the script at all, and said why."""
        if said.startswith("NOPERM") and len(chunk.streams) > 1:
            # It does not say which stream is forbidden: each goes by itself.
            self._runs.extendleft(reversed(self._by_stream(chunk.places)))
            return
        for place in chunk.places:
            self._judge(place, said)

    def doubt(self, chunk: Chunk, outcome: Failed) -> None:
        """Nobody knows whether what was sent is there, or is safe."""
        for place in chunk.places:
            if self.outcomes[place] in (SENT, NOT_STARTED):
                self._settle(place, outcome)

    def weed(self, chunk: Chunk) -> None:
        """Something in it cannot be written: what stands before that goes first, then it is rejected."""
        for number, place in enumerate(chunk.places):
            try:
                pack(self._words_of(self._batch[place].message))
            except UNWRITABLE as exc:
                if not number:
                    self._settle(place, Rejected("INVALID_MESSAGE", f"it cannot be written as an entry: {exc}"))
                self._runs.appendleft(chunk.places[number or 1 :])
                self._runs.appendleft(chunk.places[:number])
                return

    def trouble(self, chunk: Chunk) -> Outcome | None:
        """Why all that is behind this chunk would fail as well, if it would."""
        outcomes = (self.outcomes[place] for place in chunk.places)
        return next((outcome for outcome in outcomes if is_of_the_server(outcome)), None)

    def give_up(self, outcome: Outcome) -> None:
        """Say this of all that was not tried."""
        for run in self._runs:
            for place in run:
                if (key := self._batch[place].message.key) is None or key not in self._stopped:
                    self.outcomes[place] = outcome
                else:
                    self.outcomes[place] = KEY_STOPPED
        self._runs.clear()

    def _fill(self, run: Sequence[int]) -> tuple[Chunk, int]:
        """A chunk of the first messages of a run, and how many of them it settled."""
        chunk, batch, stopped, default = Chunk(), self._batch, self._stopped, self._stream
        places, streams, keys, words, size = chunk.places, chunk.streams, chunk.keys, chunk.words, 0
        for taken, place in enumerate(run):
            message, routed = batch[place]
            key, body = message.key, message.body
            if key in stopped:
                self.outcomes[place] = KEY_STOPPED
                continue
            stream = routed or message.topic or default
            entry = self._words_of(message)
            if (wrong := self._wrong_with(stream, body, entry)) is not None:
                if key in keys:
                    return chunk, taken  # what becomes of those before it is not known yet
                self._settle(place, wrong)
                continue
            size += 512 if body is None else len(body) + 512
            if places and (size > CHUNK_BYTES or len(places) == CHUNK_MAX):
                return chunk, taken
            places.append(place)
            words.append(streams.setdefault(stream or "", len(streams) + 1))
            words.append(0 if key is None else keys.setdefault(key, len(keys) + 1))
            words.append(len(entry))
            words += entry
        return chunk, len(run)

    def _wrong_with(self, stream: str | None, body: bytes | None, entry: Words) -> Outcome | None:
        """Why the server need not be asked."""
        if stream is None:
            return NO_TOPIC
        if body is not None and len(body) > self._largest:
            return too_large(len(body), self._largest)
        if len(entry) > WORDS_MAX:
            return Rejected("INVALID_MESSAGE", f"it has {len(entry) // 2} fields, more than {WORDS_MAX // 2}")
        return None

    def _judge(self, place: int, said: str) -> None:
        if said == STOPPED:
            self.outcomes[place] = KEY_STOPPED
            return
        if (key := self._batch[place].message.key) is not None and key in self._stopped:
            self.outcomes[place] = KEY_STOPPED
            return
        stream = self._stream_of(place)
        self._settle(place, outcome_of(said, stream, of_the_url=stream == self._stream))

    def _settle(self, place: int, outcome: Outcome) -> None:
        self.outcomes[place] = outcome
        if (key := self._batch[place].message.key) is not None:
            self._stopped.add(key)

    def _stream_of(self, place: int) -> str:
        message, routed = self._batch[place]
        return routed or message.topic or self._stream or ""

    def _by_stream(self, places: Sequence[int]) -> list[list[int]]:
        """The places, cut where the stream changes: their order stays."""
        runs: list[list[int]] = []
        for place in places:
            if runs and self._stream_of(runs[-1][-1]) == self._stream_of(place):
                runs[-1].append(place)
            else:
                runs.append([place])
        return runs


class Script:
    """The script as one URL wants it, and its name."""

    def __init__(self, settings: RedisUrl) -> None:
        how = "" if settings.create else "'NOMKSTREAM', "
        if settings.maxlen is not None:
            how += f"'MAXLEN', '{'~' if settings.roughly else '='}', '{settings.maxlen}', "
        self.text = _ADD % {"how": how, "stopped": STOPPED, "missing": MISSING}
        self.sha = sha1(self.text.encode()).hexdigest()  # noqa: S324 - so Redis names its scripts


class Confirmation:
    """The waiting that one URL asks for."""

    def __init__(self, settings: RedisUrl) -> None:
        self._replicas, self._disk = settings.wait, settings.waitaof

    def commands(self, seconds: float) -> list[list[Word]]:
        """Return what to ask on the connection that the messages went by, with so much time left. Never for 0 milliseconds,
        which is forever."""
        milliseconds = max(1, int(seconds * 900))
        waits: list[list[Word]] = []
        if self._replicas:
            waits.append(["WAIT", self._replicas, milliseconds])
        if self._disk:
            waits.append(["WAITAOF", 1, 0, milliseconds])
        return waits

    def missing(self, replies: Sequence[Any]) -> Failed | None:
        """What is short, by the answers to these commands; None when all is where it should be."""
        replies = list(replies)
        if self._replicas:
            replicas = replies.pop(0)
            if isinstance(replicas, RedisError):
                return Failed("NOT_REPLICATED", told(replicas), unknown=True)
            if replicas < self._replicas:
                return short_of(replicas, self._replicas)
        if self._disk:
            disks = replies.pop(0)
            if isinstance(disks, RedisError):
                return Failed("NOT_ON_DISK", told(disks), unknown=True)
            if disks[0] < 1:
                return NOT_ON_DISK
        return None
