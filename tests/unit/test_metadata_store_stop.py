"""Changes of the metadata that a stop finds before their thread has begun to write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker.clock import FakeClock
from kbroker.errors import ClientError
from kbroker.metadata.builders import create_topic
from kbroker.metadata.loader import load_image
from kbroker.metadata.store import MetadataStore
from kbroker.operations import Completion
from kbroker.uuids import random_uuid
from tests.support.waits import wait_for


def create(store: MetadataStore, name: str) -> Completion[None]:
    return store.append(create_topic(name, random_uuid(), 1, store.replica))


@pytest.mark.parametrize("first", ["append", "snapshot"])
def test_a_stop_fails_what_it_drops_and_takes_the_last_change(tmp_path: Path, first: str) -> None:
    """As the end of the registration is appended when the worker has no thread any more."""
    store = MetadataStore(tmp_path, FakeClock())
    store.open()
    posted: list[Callable[[], None]] = []
    worker = store.worker
    worker.open(posted.append)
    worker.run(lambda: wait_for("the stop", lambda: worker._closing, 30))
    dropped: list[Completion[Any]] = [store.snapshot()] if first == "snapshot" else []
    dropped += [create(store, "a"), create(store, "b")]
    worker.close()
    assert [type(each.error) for each in dropped] == [ClientError] * len(dropped)
    create(store, "last").result()
    store.close()
    assert set(load_image(tmp_path).topics) == {"last"}
