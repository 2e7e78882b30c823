def commit_key(group: str, topic: str, partition: int) -> bytes: ...
def commit_value(
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_timestamp: int,
    expire_timestamp: int,
    topic_id: bytes,
    version: int,
) -> bytes: ...
