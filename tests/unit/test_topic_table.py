"""The data plane's table of topics: many removed at once."""

from __future__ import annotations

import gc
from pathlib import Path

from kbroker.ext.data_plane import DataPlane
from kbroker.ext.debug import live_objects
from tests.support.logs import open_log


def test_removed_topics_are_gone_and_let_go_of_their_logs(tmp_path: Path) -> None:
    plane = DataPlane({})
    gc.collect()
    before = live_objects().get("log", 0)
    names = [f"topic-{number}" for number in range(200)]
    for number, name in enumerate(names):
        logs = [open_log(tmp_path / f"{name}-{index}") for index in range(2)]
        plane.add_topic(name, number.to_bytes(16, "big"), logs)
    del logs
    assert plane.counts()[:2] == (200, 400)
    assert plane.remove_topics(["nope", *names[:150], names[0]]) == 150
    gc.collect()
    assert plane.counts()[:2] == (50, 100) and live_objects().get("log", 0) - before == 100
    log = open_log(tmp_path / "again-0")
    plane.add_topic(names[0], bytes(16), [log])  # writers are not locked out
    assert plane.remove_topic(names[0]) and plane.remove_topics(names[150:]) == 50
    assert plane.remove_topics([]) == 0 and plane.counts()[:2] == (0, 0)


def test_a_name_that_is_no_name_leaves_the_table_usable(tmp_path: Path) -> None:
    plane = DataPlane({})
    gc.collect()
    before = live_objects().get("log", 0)
    for number, name in enumerate("ab"):
        plane.add_topic(name, bytes([number]) * 16, [open_log(tmp_path / f"{name}-0")])
    names: list[str] = ["a", None, "b"]  # type: ignore[list-item]
    try:
        plane.remove_topics(names)
    except AttributeError:
        pass
    else:
        raise AssertionError("it took None for a name")
    gc.collect()
    assert plane.counts()[:2] == (1, 1) and live_objects().get("log", 0) - before == 1
    assert plane.remove_topic("b")
