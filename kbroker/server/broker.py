"""The broker: its parts, in the order in which they start and stop.

Start: lock on the first log directory; metadata store; the other directories; logs opened and
recovered, journals replayed;
listeners bound, so that clients are refused until then and do not wait; this process registered
in the metadata as every partition's leader; topics offered; threads. Stop is the way back: no new
connections, what is in flight is answered, journal and logs are flushed, checkpoints, the mark of
a clean stop.
"""

from __future__ import annotations

import errno
import logging
import queue
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

from kbroker import __version__, runfile
from kbroker.api import moving, publish, registry
from kbroker.api.authorizing import tell_data_plane
from kbroker.api.context import Endpoint, Services
from kbroker.api.data_rights import Denials
from kbroker.api.delegation import TokenSweep
from kbroker.api.dispatch import Dispatcher
from kbroker.api.quotas import publish_quotas
from kbroker.api.topic_names import INTERNAL_TOPICS
from kbroker.clock import SystemClock
from kbroker.config import BrokerConfig
from kbroker.config.definitions_kbroker import HTTP_LISTENERS
from kbroker.errors import KbrokerError, OperatorError
from kbroker.ext.data_plane import DataPlane
from kbroker.ext.engine import DEFAULTS as ENGINE_DEFAULTS
from kbroker.ext.engine import FRAME_BYTES_MAX, SECURITY_PROTOCOLS
from kbroker.ext.log import Log
from kbroker.metadata import directories, registration
from kbroker.metadata.builders import Listener
from kbroker.metadata.records.schema import Record
from kbroker.metadata.store import SNAPSHOT_MIN_BYTES, MetadataStore
from kbroker.ports import bound
from kbroker.security import admission
from kbroker.server import journal, sockets
from kbroker.server.beside import beside
from kbroker.server.control import ControlThread, FullCollection, Mailbox
from kbroker.server.disk_failure import DiskWatch, FlushesPutOff, hangs
from kbroker.server.health import Health
from kbroker.server.http import HttpListener
from kbroker.server.liveness import Planes
from kbroker.server.log_opening import LogOpening
from kbroker.server.notices import notices
from kbroker.server.pages import Pages, Parts
from kbroker.server.reload import take_over
from kbroker.server.service import Notifier, extend
from kbroker.server.slow import SlowRequests
from kbroker.server.tls import tls_listeners
from kbroker.server.upkeep import Upkeep, threads_of
from kbroker.storage.checkpoints import CLEAN_SHUTDOWN
from kbroker.storage.cleaner import LogCleaner
from kbroker.storage.disk import DiskLimits
from kbroker.storage.disks import DiskGuards
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.manager import LogManager

_LOG: Final = logging.getLogger("kbroker.server")
_DRAIN_MS: Final = 5000
_RECEIVE_BUFFER: Final = "socket.receive.buffer.bytes"


class Broker:
    """One broker on its log directories. `start` once, `stop` once; both from one thread."""

    def __init__(
        self,
        config: BrokerConfig,
        notifier: Notifier | None = None,
        inherited: Iterable[tuple[int, str]] = (),
        users: Iterable[Record] = (),
    ) -> None:
        """`inherited` are descriptors of bound sockets with the names that they were given; `users`
        are records of who may log in from this start on."""
        self.config = config
        self._users = list(users)
        self._notifier = notifier or Notifier("")
        self._inherited = list(inherited)
        self._phase = "opening the metadata"
        self.directories = [
            LogDirectory(Path(path).absolute(), place) for place, path in enumerate(config.log_dirs)
        ]
        self.directory = self.directories[0].path
        self.endpoints: dict[str, Endpoint] = {}
        self.addresses: list[str] = []
        self._clock = SystemClock()
        self._started_ms = self._clock.monotonic_ms()
        self._store: MetadataStore | None = None
        self._logs: LogManager | None = None
        self._opening: LogOpening | None = None
        self._serving = False
        self._broker_epoch = -1
        self._data_plane: DataPlane | None = None
        self._control: ControlThread | None = None
        self._mailbox: Mailbox | None = None
        self._services: Services | None = None
        self._upkeep: list[Upkeep] = []
        self._cleaner: LogCleaner | None = None
        self._pages = Pages()
        self._http = HttpListener(self._pages.serve)
        self._disk: DiskGuards | None = None
        self._planes: Planes | None = None

    # ---- any time, any thread

    def doing(self) -> str:
        """What it does now, for people."""
        if not self._serving:
            logs = self._logs
            if logs is None or not logs.expected:
                return self._phase
            return f"{self._phase}: {len(logs)} of {logs.expected} partitions"
        assert self._data_plane is not None and self._logs is not None
        text = (
            f"{self._phase} {', '.join(self.addresses)}: {len(self._logs)} partitions, "
            f"{self._data_plane.engine.connections()} connections"
        )
        offline = [f"{one} is offline: {one.failure}" for one in self.directories if one.failure]
        if offline:
            return f"{text}; the log directory {'; '.join(offline)}"
        refused_for = self._disk.refused_for if self._disk is not None else None
        return f"{text}; produce is refused: {refused_for}" if refused_for else text

    def fault(self, timeout_s: float) -> str | None:
        """None when both planes answer in time, else who does not. One thread at a time."""
        return self._planes.fault(timeout_s) if self._planes is not None else "not started"

    def reload(self, fresh: BrokerConfig, timeout_s: float) -> list[str]:
        """Take over what differs in other static settings; the names of what has changed.

        Raises ConfigError where they do not fit, OperatorError where the control thread is busy.
        """
        assert self._mailbox is not None and self._services is not None
        services = self._services
        outcome: queue.SimpleQueue[list[str] | KbrokerError] = queue.SimpleQueue()

        def take() -> None:
            try:
                outcome.put(take_over(services, fresh))
            except KbrokerError as error:
                outcome.put(error)

        self._mailbox.post(take)
        try:
            done = outcome.get(timeout=timeout_s)
        except queue.Empty:
            raise OperatorError("the control thread is busy; it comes to that later") from None
        if isinstance(done, KbrokerError):
            raise done
        return done

    # ---- start

    def start(self) -> None:
        """Serve. Raises OperatorError or DiskError, with everything let go of again."""
        for listener in self.config.listeners:
            _check_address(listener.host, listener.port)
        if not directories.is_formatted(self.directory):
            admission.check(self.config)  # what is wrong is told before anything is written
        _make_directory(self.directory)
        self.directories[0].lock.acquire()
        try:
            directories.check_first(self.directories)
            self._start()
        except BaseException:
            self._abandon()
            raise

    def _start(self) -> None:
        self._start_http()
        store = self._store = self._open_store()
        for line in notices(self.config, users=bool(store.image.scram or self._users)):
            _LOG.warning("%s", line)
        directories.identify(self.directories, store.meta, store.image)
        data_plane = self._data_plane = self._make_data_plane()
        threads = self.config.integer("num.recovery.threads.per.data.dir")
        opening = self._opening = LogOpening(self.directories, data_plane)
        logs = self._logs = LogManager(self.directories, opening.open, threads, opening.create)
        mailbox = self._mailbox = Mailbox(data_plane.engine.wake_control)
        services = self._services = Services(
            self.config, store, logs, data_plane, self._clock, self.endpoints, mailbox.post
        )
        for listener in self.config.listeners:
            if listener.protocol.startswith("SASL"):
                services.authentication.open(listener.name)
        publish.cordon(services)
        publish.limit_disk(services)  # sizes of segments and journals follow
        self._open_logs(services)
        self._listen(data_plane)
        services.tls = tls_listeners(self.config, data_plane.engine)
        self._lead(store, logs)
        if self._users:
            store.append(self._users).result()
        with beside(partial(self._open_journals, data_plane, logs, services.disk_limits)):
            table = registry.table()  # imports the handlers while the disk has its time
        for topic in store.image.topics.values():
            publish.offer_topic(services, topic)
        services.groups.open()
        services.transactions.open()
        publish.limit_connections(services)
        publish.limit_listeners(services)
        publish_quotas(services)
        publish.tell_versions(services)
        publish.verify_transactions(services)
        tell_data_plane(services)
        dispatcher = Dispatcher(services, table)
        slow = SlowRequests(data_plane.engine, self.config)
        slow.tick()
        self._control = ControlThread(
            data_plane, dispatcher, self._clock, mailbox,
            (services.groups, services.transactions, services.durable),
            (slow.tick, dispatcher.tell_dropped, services.authentication.refusals.tell_dropped,
             services.audit.tell_dropped, store.snapshot_when_due, TokenSweep(services).tick,
             Denials(services).tick, FlushesPutOff(logs, self._clock).tick,
             FullCollection(services.operations, self._clock).tick, dispatcher.drop_gone),
            DiskWatch(store, logs, data_plane, self.config.node_id, services.changes),
            services.operations,
        )  # fmt: skip
        limits = services.disk_limits
        disk = self._disk = DiskGuards(limits, logs, data_plane, INTERNAL_TOPICS, self._clock)
        for one in logs.online:
            with one.apart():
                disk.check(one.place)  # a limit holds from the first request on
        self._upkeep = threads_of(self.config, logs, disk, self._clock)
        self._cleaner = logs.cleaner = LogCleaner(self.config, logs, self._clock, disk.await_room)
        services.moves = logs.moves = moving.made(services, self._cleaner)
        data_plane.engine.start()
        self._planes = Planes(data_plane.engine, mailbox.post)
        logs.hangs = partial(hangs, data_plane.hanging, store)
        self._open_workers(services, mailbox)
        self._phase, self._serving = "serving", True
        self._control.start()
        self._tell_where(disk.refused_for)
        for thread in self._upkeep:
            thread.start()
        self._cleaner.start()
        mailbox.post(partial(moving.resume, services))
        self._open_pages(services, data_plane, disk, self._cleaner)

    def _start_http(self) -> None:
        """Serve health and metrics while the rest starts."""
        named = self.config.is_set(HTTP_LISTENERS)
        names = [listener.advertised_host for listener in self.config.listeners]
        self._http.bind(self.config.http_listeners, set_by_user=named, names=names)
        self._http.start()

    def _open_workers(self, services: Services, mailbox: Mailbox) -> None:
        """From now on nothing on the control thread waits for a disk or computes for long."""
        assert self._store is not None
        for worker in (self._store.worker, *(each.worker for each in self.directories)):
            worker.open(mailbox.post)
        services.offload.open(mailbox.post)
        if any(listener.protocol.startswith("SASL") for listener in self.config.listeners):
            services.authentication.verify_beside(mailbox.post)

    def _open_pages(
        self, services: Services, data_plane: DataPlane, disk: DiskGuards, cleaner: LogCleaner
    ) -> None:
        """Clients are served: metrics and health can be told."""
        planes = Planes(data_plane.engine, services.post)
        health = Health(planes, services.logs, services.groups)
        self._pages.parts = Parts(
            services, data_plane, disk, cleaner, health, self.addresses, self._http.addresses,
            self._clock.monotonic_ms(),
        )  # fmt: skip

    def _open_store(self) -> MetadataStore:
        wanted = self.config.node_id if "node.id" in self.config.static else None
        store = MetadataStore(
            self.directory,
            self._clock,
            node_id=wanted,
            snapshot_interval_ms=self.config.integer("metadata.log.max.snapshot.interval.ms"),
            snapshot_bytes=self._snapshot_bytes(),
        )
        store.open()
        self.config.adopt_node_id(store.meta.node_id)
        image = store.image
        node = ("broker", str(store.meta.node_id))
        self.config.set_dynamic(image.configs(node), image.configs(("broker", "")))
        admission.pass_over_bad(self.config)
        return store

    def _snapshot_bytes(self) -> int:
        """Bytes of metadata between snapshots where they are set; the store's own are fewer than
        Apache Kafka's, so that a start reads less."""
        name = "metadata.log.max.record.bytes.between.snapshots"
        return self.config.integer(name) if name in self.config.static else SNAPSHOT_MIN_BYTES

    def _make_data_plane(self) -> DataPlane:
        config = self.config
        known = {name: config.value(name) for name in ENGINE_DEFAULTS if config.text(name)}
        settings = {name: value for name, value in known.items() if isinstance(value, int)}
        if _RECEIVE_BUFFER not in config.static:
            # A fixed size turns the kernel's own tuning off: half the cost of a large produce.
            settings[_RECEIVE_BUFFER] = -1
        frame_bytes_max = min(settings["socket.request.max.bytes"], FRAME_BYTES_MAX)
        settings["socket.request.max.bytes"] = frame_bytes_max
        try:
            made = DataPlane(
                settings,
                node_id=config.node_id,
                fetch_bytes_max=config.integer("fetch.max.bytes"),
                fetch_sessions_max=config.integer("max.incremental.fetch.session.cache.slots"),
            )
            made.set_directories([str(one.path) for one in self.directories])
            return made
        except ValueError as error:
            raise OperatorError(str(error)) from None

    def _listen(self, data_plane: DataPlane) -> None:
        given = sockets.by_listener(self._inherited, self.config.listeners)
        for one in self.config.listeners:
            try:
                speaks = SECURITY_PROTOCOLS.index(one.protocol)
                if one.name in given:
                    port = data_plane.engine.adopt(given[one.name], one.name, speaks)
                else:
                    port = data_plane.engine.listen(one.host, one.port, one.name, speaks)
            except OSError as error:
                raise _cannot_listen(one.host, one.port, error) from None
            told = one.advertised_port or port
            self.endpoints[one.name] = Endpoint(one.advertised_host, told)
            host = f"[{one.host}]" if ":" in one.host else one.host or "0.0.0.0"
            self.addresses.append(f"{one.name}://{host}:{port}")

    def _open_logs(self, services: Services) -> None:
        logs, topics = services.logs, services.image.topics
        began_ms = self._clock.monotonic_ms()
        publish.adapt_segments(services, sum(len(topic.partitions) for topic in topics.values()))
        specs = [one for topic in topics.values() for one in publish.specs_of(services, topic)]
        self._phase = "opening"
        if specs and not all((one.path / CLEAN_SHUTDOWN).exists() for one in logs.online):
            self._phase = "recovering"
            extend(self._notifier, self._phase)
        deleted_topics = services.image.deleted_topics
        logs.start(specs, deleted_topics)
        if len(logs.online) == len(logs.directories):
            deleted_topics.clear()  # their folders have other names now
        journal.recover(logs, {topic.name: topic.id for topic in topics.values()})
        if len(logs):
            took_ms = self._clock.monotonic_ms() - began_ms
            _LOG.info("opened %d partitions in %d ms", len(logs), took_ms)

    def _lead(self, store: MetadataStore, logs: LogManager) -> None:
        """Register this process and have it lead every partition, in a new epoch after a crash."""
        self._broker_epoch = registration.begin(
            store,
            [
                Listener(name, endpoint.host, endpoint.port)
                for name, endpoint in self.endpoints.items()
            ],
            clean=logs.started_clean,
            rack=self.config.string("broker.rack") or None,
            directories=logs.ids(),
            homes=logs.home_ids(),
            lost=logs.lost(),
        )
        for (topic, partition), log in logs.items():
            state = store.image.partition(topic, partition)
            if isinstance(log, Log) and state is not None:
                log.leader_epoch = state.leader_epoch

    def _open_journals(self, data_plane: DataPlane, logs: LogManager, limits: DiskLimits) -> None:
        journal.open_all(self.config, data_plane, logs, limits)
        assert self._opening is not None
        self._opening.journal_open = True

    def _tell_where(self, produce_refused: str | None) -> None:
        runfile.write(
            self.directory,
            listeners=self.addresses,
            durability=self.config.string("kbroker.durability"),
            version=__version__,
            produce_refused=produce_refused,
            http=self._http.addresses,
        )
        took_ms = self._clock.monotonic_ms() - self._started_ms
        _LOG.info("serving %s after %d ms", ", ".join(self.addresses), took_ms)

    # ---- stop

    def stop(self) -> bool:
        """Finish what is in flight, flush, close. True when the next start needs no recovery."""
        assert self._data_plane is not None and self._store is not None
        _LOG.info("stopping")
        self._pages.parts = None
        self._phase = "stopping"
        engine = self._data_plane.engine
        engine.stop_accepting()
        if self._services is not None and self._services.moves is not None:
            self._services.moves.stop()  # while the control thread can end the one at hand
        if self._mailbox is not None and self._services is not None:
            self._mailbox.post(self._services.transactions.stop)
            self._mailbox.post(self._services.groups.stop)
            self._mailbox.post(self._services.operations.stop)
        engine.stop(_DRAIN_MS)
        if self._control is not None:
            self._control.stop()
        for worker in (self._store.worker, *(each.worker for each in self.directories)):
            worker.close()  # after the call under way; what has not begun is dropped
        if self._mailbox is not None:  # this thread owns the control state now
            self._mailbox.run(self._clock, _DRAIN_MS)
        if self._cleaner is not None:
            self._cleaner.stop()  # before the looks that it may wait for
        for thread in self._upkeep:
            thread.stop()
        clean = self._close_logs(self._data_plane, self._store)
        runfile.remove(self.directory)
        self._http.stop()
        if self._services is not None:
            self._services.close()
        self._store.close()
        self._release()
        _LOG.info("stopped" if clean else "stopped, not cleanly: the next start recovers")
        return clean

    def _close_logs(self, data_plane: DataPlane, store: MetadataStore) -> bool:
        data_plane.stop_journal()
        if self._control is not None:
            self._control.watch.look()  # the last group may have met an error
        epoch = self._broker_epoch
        try:
            epoch = registration.end(store)
        except KbrokerError as error:
            _LOG.error("%s", error)
        assert self._logs is not None
        clean = self._logs.stop(epoch)
        for one in self.directories:
            data_plane.close_journal(one.place, unlink_files=one.stopped_clean)
        return clean

    def _abandon(self) -> None:
        """A start that failed half way: leave everything as a crash would, but free of locks."""
        self._http.stop()
        if self._data_plane is not None:
            if self._services is not None:
                self._services.transactions.stop()
                self._services.groups.stop()
                self._services.close()
            self._data_plane.engine.stop(0)
            self._data_plane.stop_journal()
        if self._store is not None:
            self._store.close()
        self._release()

    def _release(self) -> None:
        for one in self.directories:
            one.lock.release()


def _check_address(host: str, port: int) -> None:
    """An address that is not to be had is told before anything is written. A port that is taken is
    not looked at here: it may be by the broker that holds the directory, which is told better."""
    try:
        bound(host, port).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise _cannot_listen(host, port, error) from None


def _cannot_listen(host: str, port: int, error: OSError) -> OperatorError:
    return OperatorError(
        f"cannot listen on {host}:{port}: {error.strerror}; choose another with listeners="
    )


def _make_directory(directory: Path) -> None:
    """Its user's alone: passwords and keys are in what the metadata log has."""
    try:
        directory.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OperatorError(
            f"cannot make the data directory {directory}: {error.strerror}; set log.dirs"
        ) from None
