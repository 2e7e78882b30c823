"""The broker in its own metadata: it takes its place at start, and leaves it when it stops.

    store.open()
    begin(store, listeners, clean=take_clean_shutdown(directory) is not None)
    ...
    epoch = end(store)
    store.close()
    write_clean_shutdown(directory, epoch)      last of all, when every log is flushed

Both are one append. The mark of a clean shutdown carries the broker epoch, so that an Apache
Kafka that is started next sees that nothing was lost since that registration; without it, Kafka
takes its replicas for ones that may have lost records, and elects them nevertheless, being the
only ones (KIP-966).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kbroker.storage.log_port import Directories, Key
from kbroker.uuids import random_uuid

from .builders import Listener, adopt_partitions, elect_leaders, leave_broker, register_broker
from .store import MetadataStore


def begin(
    store: MetadataStore,
    listeners: Iterable[Listener],
    *,
    clean: bool,
    rack: str | None = None,
    directories: Directories | None = None,
    homes: Mapping[Key, bytes] | None = None,
    lost: Collection[Key] = (),
) -> int:
    """Register this process, and lead every partition; the broker epoch. `homes` are the
    directories in which they are, `lost` those whose directory is not here; unless told, all are
    in the store's.

    After a crash (`clean` is False) every partition gets a new leader epoch: what acks=1 was
    told of may be lost, and a reader that saw it learns so from the epoch.
    """
    image, replica = store.image, store.replica
    epoch = store.next_offset
    registered = store.append(
        [
            *register_broker(
                image,
                replica,
                listeners,
                incarnation_id=random_uuid(),
                broker_epoch=epoch,
                rack=rack,
                directories=directories,
            ),
            *adopt_partitions(image, replica, homes),
            *elect_leaders(image, replica, new_epochs=not clean, lost=lost),
        ]
    )
    registered.result()
    return epoch


def end(store: MetadataStore) -> int:
    """Fence this process's registration; its epoch, -1 where it had none."""
    node_id = store.meta.node_id
    records = leave_broker(store.image, node_id)
    if records:
        store.append(records).result()
    broker = store.image.brokers.get(node_id)
    return -1 if broker is None else broker.broker_epoch
