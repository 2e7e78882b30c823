"""The KRaft quorum as this node sees it: its voters, its epoch, and the `quorum-state` file.

`quorum-state` is one line of JSON, replaced whole, in the folder of the metadata log. Its
`data_version` follows kraft.version (KIP-853):

    1   {"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"A...","data_version":1}
    0   {"clusterId":"","leaderId":1,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,
         "currentVoters":[{"voterId":1}],"data_version":0}

With kraft.version 1 the voters are in the log (VotersRecord), each an id with the directory id
and endpoints; with 0 they are in the configuration of the node, and only their ids are known
here. kbroker is a quorum of its own: it leads every epoch, and refuses a directory whose quorum
has other voters.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from kbroker.errors import CorruptFileError, OperatorError
from kbroker.files import read_file, write_atomically
from kbroker.uuids import ZERO_UUID, uuid_text

from .records import raft
from .records.schema import Record

QUORUM_STATE = "quorum-state"
_NOBODY = -1

VOTER_LISTENER = "CONTROLLER"
VOTER_HOST = "localhost"
VOTER_PORT = 9093
"""Where the controller of the only voter is said to be: what the server.properties that Apache
Kafka comes with say. kbroker opens no such listener. A Kafka that is started on the directory
writes a new VotersRecord with its own listeners as soon as it leads."""


class QuorumState(NamedTuple):
    """What `quorum-state` says: the greatest epoch seen, and its leader."""

    leader_id: int
    leader_epoch: int
    voters: tuple[int, ...]
    """Ids of the voters, where kraft.version is 0."""


class Quorum:
    """Voters and kraft.version, as the control records of snapshot and log say them."""

    def __init__(self) -> None:
        self.kraft_version = 0
        self.voters: raft.VotersRecord | None = None

    def take(self, record: Record | None) -> None:
        """A control record; those about leaders and snapshots change nothing."""
        if isinstance(record, raft.KRaftVersionRecord):
            self.kraft_version = record.kraft_version
        elif isinstance(record, raft.VotersRecord):
            self.voters = record

    def records(self) -> list[Record]:
        """What a snapshot says of the quorum, behind its header."""
        if self.kraft_version == 0 or self.voters is None:
            return []
        return [raft.KRaftVersionRecord(0, self.kraft_version), self.voters]

    def leader_change(self, node_id: int) -> raft.LeaderChangeMessage:
        """The record that begins an epoch which this node leads."""
        voter = raft.LeaderChangeVoter(node_id)
        return raft.LeaderChangeMessage(0, node_id, [voter], [voter])

    def check_alone(self, node_id: int, directory_id: bytes, state: QuorumState | None) -> None:
        """Refuse a quorum that is not this node alone."""
        if self.voters is not None and self.kraft_version > 0:
            keys = [(voter.voter_id, voter.voter_directory_id) for voter in self.voters.voters]
            if keys == [(node_id, directory_id)]:
                return
            others = ", ".join(f"{voter} ({uuid_text(uid)})" for voter, uid in keys)
        elif state is None or not state.voters or state.voters == (node_id,):
            return
        else:
            others = ", ".join(map(str, state.voters))
        raise OperatorError(
            f"the metadata log belongs to a KRaft quorum of voters {others}; kbroker runs alone, "
            f"as node {node_id} of directory {uuid_text(directory_id)}: use the directory of a "
            "one-node cluster, or let the other voters leave first"
        )


def only_voter(node_id: int, directory_id: bytes) -> raft.VotersRecord:
    """The voters of a new quorum: this node."""
    endpoint = raft.Endpoint(VOTER_LISTENER, VOTER_HOST, VOTER_PORT)
    versions = raft.KRaftVersionFeature(0, 1)
    return raft.VotersRecord(0, [raft.VotersVoter(node_id, directory_id, [endpoint], versions)])


def read_quorum_state(folder: Path) -> QuorumState | None:
    """The state in the metadata log's folder, None where no election was ever recorded."""
    path = folder / QUORUM_STATE
    data = read_file(path)
    if data is None:
        return None
    try:
        found: dict[str, Any] = json.loads(data)
        version = found["data_version"]
        if version not in (0, 1):
            raise CorruptFileError(path, f"data_version {version}, expected 0 or 1")
        voters = tuple(int(voter["voterId"]) for voter in found.get("currentVoters") or ())
        return QuorumState(int(found["leaderId"]), int(found["leaderEpoch"]), voters)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(path, f"not an election state: {error!r}") from None


def write_quorum_state(folder: Path, node_id: int, epoch: int, kraft_version: int) -> None:
    """Say durably that this node leads `epoch`; before the first record of it is written."""
    state: dict[str, Any] = {"leaderId": node_id, "leaderEpoch": epoch, "votedId": _NOBODY}
    if kraft_version == 0:
        state = {"clusterId": ""} | state
        state |= {"appliedOffset": 0, "currentVoters": [{"voterId": node_id}], "data_version": 0}
    else:
        state |= {"votedDirectoryId": uuid_text(ZERO_UUID), "data_version": 1}
    text = json.dumps(state, separators=(",", ":"))
    write_atomically(folder / QUORUM_STATE, text.encode())
