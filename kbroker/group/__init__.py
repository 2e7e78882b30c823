"""The group coordinator: consumer groups of both protocols, and committed offsets.

State is a fold over `__consumer_offsets`: a partition of that topic holds what a `Shard` holds.
Requests and timers come in with the time; records and answers go out as an `Outcome`. In a shard
and its rooms is no clock, no socket and no thread: `runtime` joins them to logs and connections,
`loading` reads the logs on a thread of its own.
"""
