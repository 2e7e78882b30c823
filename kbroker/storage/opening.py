"""Logs are opened on several threads at the start, each directory's on its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import chain

from kbroker.storage.log_port import Opening
from kbroker.storage.progress import Progress


def open_all(
    groups: Sequence[Sequence[Opening]], do: Callable[[Opening], object], threads: int
) -> None:
    """Open every group on so many threads, and tell how far that is when it takes long."""
    if not groups:
        return
    with Progress([opening.directory for opening in chain(*groups)]) as progress:
        works = [_work(group, do, progress) for group in groups]
        helpers = [
            threading.Thread(target=work, name=f"recovery-{place}-{index}")
            for place, (group, work) in enumerate(zip(groups, works, strict=True))
            for index in range(min(threads, len(group)) - (place == 0))
        ]
        for helper in helpers:
            helper.start()
        works[0]()
        for helper in helpers:
            helper.join()


def _work(
    group: Sequence[Opening], do: Callable[[Opening], object], progress: Progress
) -> Callable[[], None]:
    """What each thread of a group does: it takes the next one that is left."""
    rest = iter(group)
    taking = threading.Lock()

    def work() -> None:
        while True:
            with taking:
                opening = next(rest, None)
            if opening is None:
                return
            do(opening)
            progress.opened(opening.directory)

    return work
