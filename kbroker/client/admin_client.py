"""The admin client: everything that brokers answer beside records.

Calls about many things give `Results`: a mapping whose values raise the error of what failed; a
call that changes something raises the first error by itself unless `partial=True`. Each request
goes to the node that answers it (controller, leader, coordinator, the broker itself) and is sent
again while it fails in a way that passes, within `default.api.timeout.ms`. Thread-safe.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kbroker.client import (
    admin,
    admin_acls,
    admin_cluster,
    admin_configs,
    admin_membership,
    admin_replicas,
    admin_transactions,
    admin_users,
    group_offsets,
    groups,
    offsets,
)
from kbroker.client.admin import CreatedTopic, NewTopic
from kbroker.client.admin_acls import Acl, AclFilter
from kbroker.client.admin_cluster import ClusterInfo, Features, LogDir, Quorum
from kbroker.client.admin_configs import ConfigEntry, ConfigOp
from kbroker.client.admin_replicas import Reassignment
from kbroker.client.admin_transactions import (
    FencedProducer,
    OpenTransaction,
    ProducerState,
    TransactionDescription,
    TransactionListing,
)
from kbroker.client.admin_users import (
    DelegationToken,
    QuotaEntity,
    ScramCredential,
    ScramDeletion,
    ScramUpsertion,
)
from kbroker.client.cluster import Cluster, TopicInfo
from kbroker.client.config_admin import admin_config
from kbroker.client.controllers import ControllerCluster
from kbroker.client.errors import BrokerError
from kbroker.client.groups import GroupDescription, GroupListing
from kbroker.client.offsets import FoundOffset
from kbroker.client.partitions import OffsetAndMetadata, TopicPartition
from kbroker.client.results import Results
from kbroker.client.sweeper import sweep
from kbroker.errors import ErrorCode

__all__ = ["Admin"]

Partition = tuple[str, int]
V = TypeVar("V")
K = TypeVar("K")


def _told(results: Results[K, V], partial: bool) -> Results[K, V]:
    return results if partial else results.checked()


class Admin:
    """An admin client, configured by Kafka's names as a dict or keyword arguments.

    `with Admin(bootstrap_servers="localhost:9092") as admin: admin.create_topic("t")`

    With bootstrap.controllers it speaks to the controllers alone (KIP-919), which serve what needs
    no topics: cluster, quorum, features, settings, ACLs, users, quotas.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        self.config = admin_config(config, settings)
        controllers = self.config.bootstrap_controllers
        self._cluster = (
            ControllerCluster.of(self.config, controllers)
            if controllers
            else Cluster.of(self.config)
        )
        sweep(self._cluster)

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, timeout_s: float = 0.0) -> None:
        """Waits up to so many seconds for calls of other threads to end, while no new ones begin;
        then closes the connections. Calls that still wait for an answer end with ClosedError."""
        if timeout_s > 0:
            self._cluster.calls.finish(timeout_s)
        self._cluster.close()

    def metrics(self) -> dict[str, float]:
        """Connections, metadata and retries, by Kafka's names; totals since the start."""
        return self._cluster.metrics()

    # Topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | float | None] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Creates a topic; -1 leaves a number to the broker's defaults."""
        topic = NewTopic(name, partitions, replication_factor, configs or {})
        return admin.create_topics(self._cluster, [topic], validate_only=validate_only)[name]

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, partial: bool = False
    ) -> Results[str, CreatedTopic]:
        """Creates topics."""
        made = admin.create_topics(self._cluster, topics, validate_only=validate_only)
        return _told(made, partial)

    def delete_topics(
        self, topics: Iterable[str | uuid.UUID], *, partial: bool = False
    ) -> Results[str | uuid.UUID, None]:
        """Deletes topics, by their names or ids, with all their records."""
        return _told(admin.delete_topics(self._cluster, topics), partial)

    def list_topics(
        self, *, internal: bool = False, pattern: re.Pattern[str] | None = None
    ) -> list[TopicInfo]:
        """All topics, or those whose whole names match, by name."""
        if pattern is not None:
            return self._cluster.topics_matching(pattern, internal=internal)
        return self._cluster.topics(internal=internal)

    def describe_topics(
        self, topics: Iterable[str | uuid.UUID], *, operations: bool = False
    ) -> Results[str | uuid.UUID, TopicInfo]:
        """Topics by their names or ids; with `operations`, what may be done with them."""
        return admin.describe_topics(self._cluster, topics, operations=operations)

    def create_partitions(
        self, totals: Mapping[str, int], *, validate_only: bool = False, partial: bool = False
    ) -> Results[str, None]:
        """Raises the number of partitions of topics to these totals."""
        done = admin.create_partitions(self._cluster, totals, validate_only=validate_only)
        return _told(done, partial)

    def delete_records(
        self, before: Mapping[Partition, int], *, partial: bool = False
    ) -> Results[Partition, int]:
        """Deletes what lies before an offset (-1: all); gives the new first offsets."""
        return _told(admin.delete_records(self._cluster, before), partial)

    def list_offsets(
        self, wanted: Mapping[Partition, int], *, read_committed: bool = False
    ) -> Results[TopicPartition, FoundOffset]:
        """Offsets by time in ms, or by offsets.EARLIEST, LATEST, MAX_TIMESTAMP."""
        found = offsets.offsets_of_each(self._cluster, wanted, read_committed=read_committed)
        return Results({TopicPartition(*key): told for key, told in found.told.items()})

    # Settings

    def describe_configs(
        self, resources: Iterable[tuple[int, str]], *, keys: Iterable[str] | None = None
    ) -> Results[tuple[int, str], list[ConfigEntry]]:
        """Settings of resources: (admin_configs.TOPIC, name), (BROKER, id) and so on."""
        return admin_configs.describe_resources(self._cluster, resources, keys=keys)

    def alter_configs(
        self,
        changes: Mapping[tuple[int, str], Collection[ConfigOp]],
        *,
        validate_only: bool = False,
        partial: bool = False,
    ) -> Results[tuple[int, str], None]:
        """Changes single settings of resources; the others stay (KIP-339)."""
        done = admin_configs.alter_resources(self._cluster, changes, validate_only=validate_only)
        return _told(done, partial)

    def list_config_resources(self, kinds: Collection[int] = ()) -> list[tuple[int, str]]:
        """Resources that have settings of their own (KIP-1142)."""
        return admin_configs.list_config_resources(self._cluster, kinds)

    # Groups

    def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """All groups by name, or those in one of these states and of one of these types."""
        return groups.list_groups(self._cluster, states=states, types=types)

    def describe_groups(
        self, names: Collection[str], *, operations: bool = False
    ) -> Results[str, GroupDescription]:
        """Groups of both protocols with their members; with `operations`, what may be done."""
        found = groups.describe_groups(self._cluster, names, operations=operations)
        gone = ErrorCode.GROUP_ID_NOT_FOUND
        told = {name: found.get(name) or BrokerError(gone, f"group {name!r}") for name in names}
        return Results(told)

    def delete_groups(
        self, names: Collection[str], *, partial: bool = False
    ) -> Results[str, None]:
        """Deletes groups without members, with their offsets."""
        return _told(Results(groups.delete_groups(self._cluster, names)), partial)

    def remove_members(
        self,
        group: str,
        instances: Iterable[str] | None = None,
        *,
        reason: str = "",
        partial: bool = False,
    ) -> Results[str, None]:
        """Puts static members, by group.instance.id, out of a classic group; None: all members."""
        gone = groups.remove_members(self._cluster, group, instances, reason=reason)
        return _told(Results(gone), partial)

    def list_group_offsets(
        self, names: Collection[str], *, stable: bool = False
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """All committed offsets of each group; none for a group that does not exist. stable: waits
        while transactions with offsets are open."""
        found = group_offsets.committed_offsets(self._cluster, names, stable=stable)
        return {
            name: {
                TopicPartition(*key): OffsetAndMetadata(at.offset, at.metadata, at.leader_epoch)
                for key, at in committed.items()
            }
            for name, committed in found.items()
        }

    def alter_group_offsets(
        self,
        group: str,
        to: Mapping[Partition, int | OffsetAndMetadata],
        *,
        metadata: str = "",
    ) -> None:
        """Commits offsets for a group without members; what list_group_offsets() tells as well.
        metadata: of those that come with none."""
        group_offsets.commit_offsets(self._cluster, group, to, metadata=metadata)

    def delete_group_offsets(
        self, group: str, partitions: Iterable[Partition], *, partial: bool = False
    ) -> Results[Partition, None]:
        """Deletes committed offsets of partitions that no member subscribes to."""
        gone = group_offsets.delete_offsets(self._cluster, group, partitions)
        return _told(Results(gone), partial)

    # The cluster

    def describe_cluster(self, *, fenced: bool = False, operations: bool = False) -> ClusterInfo:
        """Cluster id, controller and brokers; with `fenced` those as well that do not serve, with
        `operations` what may be done with the cluster."""
        return admin_cluster.describe_cluster(
            self._cluster, fenced=fenced, operations=operations
        )

    def unregister_broker(self, node: int) -> None:
        """Forgets a broker that does not serve any more."""
        admin_membership.unregister_broker(self._cluster, node)

    def describe_features(self) -> Features:
        """Features and their levels."""
        return admin_cluster.describe_features(self._cluster)

    def update_features(
        self, levels: Mapping[str, int], *, upgrade: str = "upgrade", validate_only: bool = False
    ) -> None:
        """Sets levels of features; upgrade: upgrade, safe_downgrade or unsafe_downgrade."""
        admin_cluster.update_features(
            self._cluster, levels, upgrade=upgrade, validate_only=validate_only
        )

    def describe_quorum(self) -> Quorum:
        """The controllers and what each of them has of the metadata log."""
        return admin_cluster.describe_quorum(self._cluster)

    def add_voter(
        self,
        node: int,
        directory: uuid.UUID,
        listeners: Mapping[str, tuple[str, int]],
        *,
        cluster_id: str | None = None,
    ) -> None:
        """Takes a controller, with its (host, port) by listener, into the quorum."""
        admin_membership.add_voter(
            self._cluster, node, directory, listeners, cluster_id=cluster_id
        )

    def remove_voter(
        self, node: int, directory: uuid.UUID, *, cluster_id: str | None = None
    ) -> None:
        """Takes a controller out of the quorum."""
        admin_membership.remove_voter(self._cluster, node, directory, cluster_id=cluster_id)

    def describe_log_dirs(
        self, nodes: Iterable[int] | None = None, *, topics: Sequence[TopicInfo] | None = None
    ) -> Results[int, tuple[LogDir, ...]]:
        """Log directories of brokers, or of all, with the logs in them."""
        if nodes is None:
            self._cluster.refresh([])
            nodes = sorted(self._cluster.nodes)
        return admin_cluster.log_dirs(self._cluster, nodes, topics)

    def alter_replica_log_dirs(
        self, moves: Mapping[tuple[int, str, int], str], *, partial: bool = False
    ) -> Results[tuple[int, str, int], None]:
        """Moves replicas (broker, topic, partition) to log directories of their brokers."""
        return _told(admin_cluster.alter_replica_log_dirs(self._cluster, moves), partial)

    def elect_leaders(
        self,
        partitions: Iterable[Partition] | None = None,
        *,
        unclean: bool = False,
        partial: bool = False,
    ) -> Results[TopicPartition, bool]:
        """Elects preferred leaders, of all partitions unless told; False: it led already."""
        done = admin_replicas.elect_leaders(self._cluster, partitions, unclean=unclean)
        return _told(done, partial)

    def alter_reassignments(
        self, targets: Mapping[Partition, Sequence[int] | None], *, partial: bool = False
    ) -> Results[TopicPartition, None]:
        """Moves partitions to these replicas; None ends a move."""
        return _told(admin_replicas.alter_reassignments(self._cluster, targets), partial)

    def list_reassignments(
        self, partitions: Iterable[Partition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The moves under way."""
        return admin_replicas.list_reassignments(self._cluster, partitions)

    # Producers and transactions

    def describe_producers(
        self, partitions: Iterable[Partition]
    ) -> Results[TopicPartition, tuple[ProducerState, ...]]:
        """The producers that each partition's leader knows of."""
        return admin_transactions.describe_producers(self._cluster, partitions)

    def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Transactional ids and where their transactions stand."""
        return admin_transactions.list_transactions(
            self._cluster,
            states=states,
            producer_ids=producer_ids,
            longer_than_ms=longer_than_ms,
            pattern=pattern,
        )

    def describe_transactions(
        self, transactional_ids: Collection[str]
    ) -> Results[str, TransactionDescription]:
        """Transactional ids as their coordinators know them."""
        return admin_transactions.describe_transactions(self._cluster, transactional_ids)

    def end_transaction(self, transaction: OpenTransaction, *, commit: bool) -> None:
        """Commits or aborts what Producer.leave_open() left open."""
        admin_transactions.end_transaction(self._cluster, transaction, commit=commit)

    def abort_transaction(self, partition: Partition, producer: ProducerState) -> None:
        """Ends a transaction that hangs in a partition."""
        admin_transactions.abort_transaction(self._cluster, partition, producer)

    def fence_producers(
        self, transactional_ids: Collection[str], *, partial: bool = False
    ) -> Results[str, FencedProducer]:
        """Lets no producer of these transactional ids go on."""
        done = admin_transactions.fence_producers(self._cluster, transactional_ids)
        return _told(done, partial)

    # Who may do what

    def describe_acls(self, which: AclFilter | None = None) -> list[Acl]:
        """The rules that a filter matches, or all."""
        return admin_acls.describe_acls(self._cluster, which)

    def create_acls(self, acls: Iterable[Acl], *, partial: bool = False) -> Results[Acl, None]:
        """Makes rules."""
        return _told(admin_acls.create_acls(self._cluster, acls), partial)

    def delete_acls(
        self, filters: Iterable[AclFilter], *, partial: bool = False
    ) -> Results[AclFilter, list[Acl]]:
        """Deletes the rules that filters match, and tells which these were."""
        return _told(admin_acls.delete_acls(self._cluster, filters), partial)

    def describe_scram_users(
        self, users: Collection[str] | None = None
    ) -> Results[str, tuple[ScramCredential, ...]]:
        """The SCRAM credentials of users, or of all."""
        return admin_users.describe_scram_users(self._cluster, users)

    def alter_scram_users(
        self, changes: Iterable[ScramUpsertion | ScramDeletion], *, partial: bool = False
    ) -> Results[str, None]:
        """Sets and takes away users' passwords."""
        return _told(admin_users.alter_scram_users(self._cluster, changes), partial)

    def describe_quotas(
        self, components: Mapping[str, str | None] | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Quotas by entity; components: kind to name, None the default, "*" any."""
        return admin_users.describe_quotas(self._cluster, components, strict=strict)

    def alter_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        partial: bool = False,
    ) -> Results[QuotaEntity, None]:
        """Sets quotas of entities; None takes one away."""
        done = admin_users.alter_quotas(self._cluster, changes, validate_only=validate_only)
        return _told(done, partial)

    def create_token(
        self,
        *,
        owner: str | None = None,
        renewers: Collection[str] = (),
        max_lifetime_ms: int = -1,
    ) -> DelegationToken:
        """A delegation token for the user of this admin, or for `owner` (`User:name`)."""
        return admin_users.create_token(
            self._cluster, owner=owner, renewers=renewers, max_lifetime_ms=max_lifetime_ms
        )

    def renew_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Puts off a token's end; gives the new one in ms since 1970."""
        return admin_users.renew_token(self._cluster, hmac, period_ms)

    def expire_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Ends a token in so many ms, with -1 at once."""
        return admin_users.expire_token(self._cluster, hmac, period_ms)

    def describe_tokens(self, owners: Collection[str] | None = None) -> list[DelegationToken]:
        """The tokens that this admin may see, or those of these owners."""
        return admin_users.describe_tokens(self._cluster, owners)
