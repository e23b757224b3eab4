"""What is pending in a group, and whose it is: scripts, since each of them must see and change it in one go.

The server knows an owner and an idle time for every entry that was delivered and not acknowledged. `XCLAIM` takes from anybody,
so whoever prolongs a hold must see in the same moment that it is still theirs; and `XGROUP DELCONSUMER` throws away what
a receiver still had, so whoever leaves must give it to somebody first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.exceptions import RedisError

from postroom.transports.redis_streams.connection import RedisConnection, Word, whole
from postroom.transports.redis_streams.url import RedisUrl

HEIR = "postroom:left"
"""Owns what a receiver gave back: a name in the group that nobody reads by. What it owns can be taken at once."""
IDLE_EVER = 10**11
"""Milliseconds, longer than anybody's hold."""
FORGET_MS = 24 * 3600 * 1000
"""So long a receiver that has nothing stays in the group's list after its last sign of life."""
AT_ONCE = 500

_KEEP = f"""
local mine, from = {{}}, '-'
while true do
  local some = redis.call('XPENDING', KEYS[1], ARGV[1], from, '+', {AT_ONCE}, ARGV[2])
  if #some == 0 then return mine end
  local ids = {{}}
  for number, entry in ipairs(some) do
    ids[number] = entry[1]
    mine[#mine + 1] = entry[1]
  end
  from = '(' .. ids[#ids]
  ids[#ids + 1] = 'JUSTID'
  redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, unpack(ids))
end
"""
"""Prolong what is ours; the answer is what that was. ARGV: group, receiver."""

_LEAVE = f"""
while true do
  local some = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', {AT_ONCE}, ARGV[2])
  if #some == 0 then break end
  local words = {{}}
  for number, entry in ipairs(some) do words[number] = entry[1] end
  for _, word in ipairs({{'IDLE', '{IDLE_EVER}', 'JUSTID'}}) do words[#words + 1] = word end
  redis.call('XCLAIM', KEYS[1], ARGV[1], '{HEIR}', 0, unpack(words))
end
if ARGV[3] == '1' then redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2]) end
"""
"""Give back all that is ours. ARGV: group, receiver, whether it leaves for good."""

_TAKE = f"""
local taken, gone, cursor, rounds = {{}}, 0, ARGV[5], 0
repeat
  local left = ARGV[4] - #taken
  local some = redis.call('XAUTOCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[3], cursor, 'COUNT', left)
  for _, entry in ipairs(some[2]) do
    local pending = redis.call('XPENDING', KEYS[1], ARGV[1], entry[1], entry[1], 1)
    taken[#taken + 1] = {{entry[1], entry[2], pending[1][4]}}
  end
  gone, cursor, rounds = gone + #(some[3] or {{}}), some[1], rounds + 1
until cursor == '0-0' or #taken >= tonumber(ARGV[4]) or rounds == 20
local others = {{}}
for _, facts in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local fact = {{}}
  for number = 1, #facts, 2 do fact[facts[number]] = facts[number + 1] end
  if fact.name ~= ARGV[2] then
    if fact.pending > 0 then
      others[#others + 1] = {{fact.name, fact.idle}}
    elseif fact.idle > {FORGET_MS} then
      redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], fact.name)
    end
  end
end
return {{taken, gone, cursor, others}}
"""
"""Take what nobody holds any more, oldest first. ARGV: group, receiver, hold in milliseconds, how many, where to go on. The
answer: entries with the number of their deliveries; how many were trimmed; where to go on; who else has something."""

_COUNT = """
local counted = {}
for number = 3, #ARGV do
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[number], ARGV[number], 1, ARGV[2])
  if #pending > 0 and #redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[number]) > 0 then
    counted[#counted + 1] = ARGV[number]
    counted[#counted + 1] = pending[1][4] + 1
  end
end
return counted
"""
"""These are delivered once more: count that, where they are still ours. ARGV: group, receiver, ids."""


class PendingScripts:
    """The pending entries of one group, as one receiver of it sees them. What the server refuses is raised as it told it."""

    def __init__(self, wire: RedisConnection, settings: RedisUrl, group: str, receiver: str, seconds: float) -> None:
        self._wire, self._group, self._receiver, self._seconds = wire, group, receiver, seconds
        self._stream, self._hold = settings.stream or "", int(settings.hold * 1000)
        self._cursor: Word = "0-0"

    async def keep(self) -> set[bytes]:
        """Prolong what is ours; its ids."""
        return set(await self._run(_KEEP))

    async def leave(self, *, for_good: bool) -> None:
        """Give back all that is ours, for others to take at once."""
        await self._run(_LEAVE, int(for_good))

    async def take(self, number: int) -> tuple[list[Any], int, dict[str, float]]:
        """What nobody holds any more, with the number of deliveries; how many were trimmed; and of the others that hold
        something how many seconds ago they gave a sign of life."""
        taken, gone, self._cursor, others = await self._run(_TAKE, self._hold, number, self._cursor)
        return taken, gone, {name.decode(errors="replace"): idle / 1000 for name, idle in others}

    async def count(self, ids: Sequence[bytes]) -> dict[bytes, int]:
        """How often these were delivered with the delivery that now comes; without those that are not ours any more."""
        counted = await self._run(_COUNT, *ids)
        return dict(zip(counted[::2], counted[1::2], strict=True))

    async def _run(self, script: str, *words: Word) -> Any:
        command = ["EVAL", script, 1, self._stream, self._group, self._receiver, *words]
        (answer,) = await whole(self._wire.ask(command, seconds=self._seconds))
        if isinstance(answer, RedisError):
            raise answer
        return answer
