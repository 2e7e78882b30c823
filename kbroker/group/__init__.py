"""The group coordinator: consumer groups of both protocols, and committed offsets.

State is a fold over `__consumer_offsets`: a partition of that topic holds what a `Shard` holds.
Requests and timers come in with the time; records and answers go out as an `Outcome`. In this room
is no clock, no socket and no thread; `runtime` joins it to logs and connections.
"""
