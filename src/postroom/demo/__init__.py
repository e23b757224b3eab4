"""`postroom demo`: a small shop, so that a newcomer sees what an outbox and an inbox are for.

`story` is played in a `world` (the database, the broker, the consumers, and the relay in a process of its own), and told on a
`stage`: as plain lines, or `live` on a terminal. `books` are what the stores say; the proof at the end is computed from them.
"""
