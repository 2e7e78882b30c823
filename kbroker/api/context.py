"""What a handler is given besides its request.

A handler is a function (request, context) -> response: the request is kio's entity, the response
a mapping that kbroker.protocol encodes. It runs on the control thread and holds no socket, no
thread and no clock of its own. What it changes goes into the metadata log first and from there to
the logs and the data plane (kbroker.api.publish).

A handler that may take long, or waits, is a generator (kbroker.operations). It yields None between
elements, so that others are served, and Completions of what it waits for:

    @register(ApiKey.CREATE_ACLS, 1, 3, failed=_failed, changes=True)
    def create_acls(request, context):
        for creation in request.creations:
            ...
            yield
        yield context.services.store.append(records, take_effect)
        return {"results": results}

A handler whose answer is sent by somebody else keeps `context.answer`, sees to it that `send`,
`send_when` or `fail` of it is called once, and returns DEFERRED. Handlers of groups leave all that
to the coordinator:

    @register(ApiKey.HEARTBEAT, 0, 4, failed=_failed)
    def heartbeat(request, context):
        check_group_id(request.group_id)
        asked = Heartbeat(...)                                 # plain values of the request
        return context.groups.handle(
            request.group_id,
            context.answer,
            lambda rooms, reply, now: rooms.classic.heartbeat(asked, reply, now),
            gated=False,                                       # does not wait for the disk
        )

The operation returns an Outcome, whose response goes out when its records are durable, or calls
`reply(response)` later. What it raises as ClientError becomes the answer by `failed`, with the
code translated as Kafka's coordinators do; `context.answer.failing` overrides `failed` where the
answer depends on what the handler found out. `parks=True` in the registration: the answer may be
long in coming. The address of the client is `context.peer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kbroker.api.addresses import java_address
from kbroker.api.answer import RequestAnswer
from kbroker.api.authorizing import authorizer_of
from kbroker.api.coordinators import GroupHost
from kbroker.api.hosts import Hosts
from kbroker.api.producer_ids import ProducerIds
from kbroker.api.quotas import mutations_of
from kbroker.api.subscriptions import subscriptions_of
from kbroker.api.topic_names import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    has_collision_chars,
    unified,
)
from kbroker.api.transactions import TransactionHost
from kbroker.changes import Changes
from kbroker.clock import Clock
from kbroker.config import BrokerConfig
from kbroker.errors import ClientError, DiskError, ErrorCode
from kbroker.ext.pulses import Pulses
from kbroker.group.runtime import GroupCoordinator
from kbroker.metadata.builders import Replica, replica_of
from kbroker.metadata.image import Image
from kbroker.metadata.meta_properties import MetaProperties
from kbroker.metadata.quorum import Quorum
from kbroker.metadata.records.schema import Record
from kbroker.offload import Offload
from kbroker.operations import Completion, Operations, Steps
from kbroker.protocol import Answered
from kbroker.security.acls import Decision
from kbroker.security.audit import Audit
from kbroker.security.principals import Principal, Principals
from kbroker.storage.disk import DiskLimits
from kbroker.storage.manager import LogManager
from kbroker.telemetry import Telemetry
from kbroker.txn.coordinator import TransactionCoordinator
from kbroker.txn.durable import Durable

if TYPE_CHECKING:
    from kbroker.security.authentication import Authentication, Counts
    from kbroker.security.tls import TlsListeners
    from kbroker.security.tokens import Tokens
    from kbroker.storage.moves import Moves

ZERO_UUID: Final = bytes(16)


class Endpoint(NamedTuple):
    """Where clients of a listener are told to connect."""

    host: str
    port: int


class StorePort(Protocol):
    """The metadata log with the image folded from it (kbroker.metadata)."""

    image: Image
    epoch: int

    @property
    def meta(self) -> MetaProperties: ...
    @property
    def directory_id(self) -> bytes: ...
    @property
    def quorum(self) -> Quorum: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def failure(self) -> DiskError | None: ...
    def append(
        self, records: Iterable[Record], then: Callable[[], object] = ...
    ) -> Completion[None]: ...
    def upgrade_kraft_version(self, then: Callable[[], object] = ...) -> Completion[None]: ...


class EnginePort(Protocol):
    """The network half (kbroker.ext.engine.Engine)."""

    def set_api_versions(
        self, bodies: dict[int, bytes], keys: list[tuple[int, int, int, int]]
    ) -> None: ...
    def principals_idle(self, numbers: list[int]) -> list[int]: ...


class DataPlanePort(Protocol):
    """What the data plane is told (kbroker.ext.data_plane.DataPlane)."""

    @property
    def engine(self) -> EnginePort: ...
    @property
    def pulses(self) -> Pulses: ...
    def add_topic(
        self, name: str, topic_id: bytes, logs: Sequence[Any], *, internal: bool = False
    ) -> None: ...
    def remove_topics(self, names: Iterable[str]) -> int: ...
    def wake(self, log: Any) -> None: ...
    def journal_error(self, place: int = 0) -> int: ...
    def set_disk_room(self, room: int | None, refusing: bool, place: int = 0) -> None: ...
    def move(self, log: Any, future: Any, gone: str, target: str, place: int) -> int: ...
    def verify_transactions(self, verify: bool) -> None: ...
    def rights_changed(self, version: int) -> None: ...
    def errors(self) -> list[dict[int, int]]: ...
    def tell_control(self, log: Any, offset: int) -> bool: ...
    def resize_threads(self, network_threads: int, io_threads: int) -> None: ...
    def limit_connections(
        self, most: int, per_ip: int, overrides: list[tuple[bytes, int]]
    ) -> None: ...
    def set_quotas(
        self, user: int, client_id: bytes | None, values: Mapping[str, float]
    ) -> None: ...
    def limit_listeners(
        self, rate: float, exempt: str, limits: dict[str, tuple[int, float]]
    ) -> None: ...
    def limit_addresses(
        self, others: float | None, rates: Sequence[tuple[bytes, float]]
    ) -> None: ...


class Services:
    """The parts of the broker that handlers work on; one for the broker's whole life."""

    def __init__(  # noqa: PLR0917
        self,
        config: BrokerConfig,
        store: StorePort,
        logs: LogManager,
        data_plane: DataPlanePort,
        clock: Clock,
        endpoints: Mapping[str, Endpoint],
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        """`post` has something done on the control thread, soon; any thread may call it."""
        self.config = config
        self.store = store
        self.logs = logs
        self.data_plane = data_plane
        self.clock = clock
        self.endpoints = endpoints
        self.post = post
        self.operations = Operations(clock.monotonic_ms)
        self.changes = Changes(self.operations, clock.monotonic_ms)
        self.offload = Offload()
        self.hosts = Hosts(post)
        self._group_host = GroupHost(self)
        self.groups = GroupCoordinator(self._group_host)
        self.transactions = TransactionCoordinator(TransactionHost(self))
        self.durable = Durable(data_plane.tell_control)
        """Of requests (kbroker.api.durability); the coordinators have their own."""
        self.answered = Answered()
        self.principals = Principals()
        self.authorizer = authorizer_of(config, store.image)  # None: everybody may do everything
        self.audit = Audit(clock)
        self.mutations = mutations_of(self)
        self.telemetry = Telemetry(
            config.integer("telemetry.max.bytes"), lambda: subscriptions_of(self)
        )
        self.tls: TlsListeners | None = None  # None: no listener has TLS
        self.moves: Moves | None = None  # the wiring's
        self.producer_ids = ProducerIds(self)
        self.disk_limits = DiskLimits()
        self.disk_bytes = -1  # most that the limits leave, see publish.limit_disk; -1: any
        self.partitions_about = 1  # their number rounded up, see publish.adapt_segments
        self.collisions: dict[str, set[str]] = {}
        self.creating: set[str] = set()
        """Topics that are about to be created automatically."""
        self.offering: dict[str, Completion[None]] = {}
        """Topics whose logs are being made, and when they are offered to clients."""

    @cached_property
    def authentication(self) -> Authentication:
        """How clients say who they are; imported when the first one does."""
        from kbroker.security.authentication import Authentication  # noqa: PLC0415

        return Authentication(
            self.config,
            lambda: self.store.image,
            lambda: self.store.directory_id,
            self.principals,
            self.clock,
        )

    def logins(self) -> dict[str, Counts]:
        """SASL exchanges of each listener that has had any; any thread may ask."""
        if "authentication" not in vars(self):
            return {}
        return self.authentication.counts.copy()

    def close(self) -> None:
        """End the threads of the parts."""
        self.offload.close()
        if "authentication" in vars(self):
            self.authentication.close()

    @cached_property
    def tokens(self) -> Tokens:
        """Delegation tokens; imported when the first one is asked about."""
        from kbroker.security.tokens import Tokens  # noqa: PLC0415

        return Tokens(self.config, lambda: self.store.image, self.clock)

    @property
    def image(self) -> Image:
        """The metadata as it is now."""
        return self.store.image

    @property
    def replica(self) -> Replica:
        """The one replica of every partition."""
        return replica_of(self.store.image, self.config.node_id, self.store.directory_id)

    def topics_changed(self) -> None:
        """Take in that there are new topics or partitions, or logs of them: a coordinator takes
        over what is new of its topic."""
        self._group_host.topics.changed()
        self.groups.open()
        self.transactions.open()

    def topics_deleted(self, names: Sequence[str]) -> Steps[None]:
        """Take in that topics were deleted, and with them the offsets that groups committed."""
        self._group_host.topics.changed()
        if CONSUMER_OFFSETS in names:
            self.groups.close()
        if TRANSACTION_STATE in names:
            self.transactions.close()
        yield from self.groups.topics_deleted(names)

    def note_topic(self, name: str) -> None:
        """Remember a name that another could collide with."""
        if has_collision_chars(name):
            self.collisions.setdefault(unified(name), set()).add(name)

    def forget_topic(self, name: str) -> None:
        """A topic is gone, and with it what its name stood in the way of."""
        names = self.collisions.get(unified(name), set())
        names.discard(name)
        if not names:
            self.collisions.pop(unified(name), None)

    def colliding(self, name: str) -> str | None:
        """An existing topic that differs from `name` only in '.' and '_'."""
        names = self.collisions.get(unified(name), ()) if has_collision_chars(name) else ()
        return next(iter(sorted(names)), None)


class Context(NamedTuple):
    """One request: who sent it, over which listener, in which version."""

    services: Services
    version: int
    listener: str
    client_id: str | None
    peer: tuple[str, int]
    answer: RequestAnswer
    principal_number: int = 0
    software: tuple[str, str] = ("", "")  # what ApiVersions told of it (kbroker.ext.control)

    @property
    def principal(self) -> Principal:
        """Who asks."""
        return self.services.principals.principal(self.principal_number)

    @property
    def host(self) -> str:
        """Where the request comes from, as ACLs name it."""
        return java_address(self.peer[0])[1:]

    def may(self, operation: int, resource_type: int, name: str, *, tell: bool = True) -> bool:
        """Whether who asks may do that; told in the audit where not. Numbers of
        kbroker.security.acls; more of the kind in kbroker.api.rights."""
        authorizer = self.services.authorizer
        if authorizer is None:
            return True
        who = str(self.principal)
        found = authorizer.decide(who, self.host, operation, resource_type, name)
        if tell and not found.allowed:
            self.services.audit.denied(
                who, self.host, self.answer.api, (operation, resource_type, name), found
            )
        return found.allowed

    def may_any(self, operation: int, resource_type: int) -> bool:
        """Whether who asks may do that to some resource of a type, be it there or not."""
        authorizer = self.services.authorizer
        if authorizer is None:
            return True
        who = str(self.principal)
        allowed = authorizer.decide_any(who, self.host, operation, resource_type)
        if not allowed:
            found = Decision(False, "no resource of the type is allowed")
            self.services.audit.denied(
                who, self.host, self.answer.api, (operation, resource_type, "(any)"), found
            )
        return allowed

    def changed(self, what: str, **fields: object) -> None:
        """Tell the audit what the request has changed."""
        self.services.audit.changed(
            what, principal=self.principal, host=self.host, api=self.answer.api, **fields
        )

    @property
    def groups(self) -> GroupCoordinator:
        """The coordinators of groups."""
        return self.services.groups

    @property
    def transactions(self) -> TransactionCoordinator:
        """The coordinator of transactions."""
        return self.services.transactions

    @property
    def image(self) -> Image:
        """The metadata as it is now."""
        return self.services.store.image

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings."""
        return self.services.config

    @property
    def node_id(self) -> int:
        """Id of this broker."""
        return self.services.config.node_id

    @property
    def endpoint(self) -> Endpoint:
        """Where clients of the request's listener find this broker."""
        endpoints = self.services.endpoints
        found = endpoints.get(self.listener) or next(iter(endpoints.values()), None)
        return found or Endpoint("", -1)


class ApiError(NamedTuple):
    """An error code with the text for the client, None for none."""

    code: ErrorCode
    message: str | None = None

    @classmethod
    def of(cls, error: ClientError) -> ApiError:
        """The answer for an exception that says what the client did wrong."""
        return cls(error.code, str(error))


NO_ERROR: Final = ApiError(ErrorCode.NONE)


def uuid_bytes(value: Any) -> bytes:
    """A uuid of a request as 16 bytes; kio has None for the zero uuid."""
    return ZERO_UUID if value is None else bytes(value.bytes)
