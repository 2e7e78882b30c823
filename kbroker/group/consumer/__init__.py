"""The consumer group protocol (KIP-848), on a shard.

A member reports by ConsumerGroupHeartbeat what it subscribes to and what it owns. A change of
subscriptions, members or topics raises the group epoch; an assignor then computes a target
assignment of that epoch (`target`); each member is brought towards it in its own time, and gets a
partition only when the one who had it has given it up (`reconcile`). Everything is in records
(`records`, `replay`), so that a restart finds the group as it was.
"""
