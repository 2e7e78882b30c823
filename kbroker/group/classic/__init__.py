"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

A generation goes through PreparingRebalance (joins are parked until every member has joined or
the time is over), CompletingRebalance (syncs are parked until the leader has sent everybody's
assignment) and Stable. What a restart finds again is the last generation that was written: an
empty group's, or a stable one's with all members and assignments.
"""
