"""The script that adds messages: all of them in one go, and of a key none behind one that failed."""

from __future__ import annotations

from hashlib import sha1

from postroom.transports.redis_streams.outcomes import MISSING, STOPPED
from postroom.transports.redis_streams.url import RedisUrl

WORDS_MAX = 4_000
"""How many words a message may have: Lua cannot hand more than about 8,000 to one call."""

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


class Script:
    """The script as one URL wants it, and its name."""

    def __init__(self, settings: RedisUrl) -> None:
        how = "" if settings.create else "'NOMKSTREAM', "
        if settings.maxlen is not None:
            how += f"'MAXLEN', '{'~' if settings.roughly else '='}', '{settings.maxlen}', "
        self.text = _ADD % {"how": how, "stopped": STOPPED, "missing": MISSING}
        self.sha = sha1(self.text.encode()).hexdigest()  # noqa: S324 - so Redis names its scripts
