"""What a member of a group has done, a line per event, flushed before anything follows from it.

assigned 0,1        partitions given to it, in addition to those it has
revoked 0,1         partitions taken from it
lost 0,1            the same, noticed too late: another member may have had them already
seen P OFFSET       a record was delivered to the application
committed P:NEXT,…  a commit was answered, or told to have been made
refused ERROR       a commit was answered with an error
fatal ERROR         the member ends because of this
left                the member has closed its client
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ASSIGNMENT_EVENTS = ("assigned", "revoked", "lost")


class Writer:
    """The history of this process."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def _write(self, lines: str) -> None:
        with self._path.open("a") as file:
            file.write(lines)

    def partitions(self, event: str, indexes: Iterable[int]) -> None:
        """An assignment event."""
        self._write(f"{event} {','.join(map(str, sorted(indexes)))}\n")

    def seen(self, records: Iterable[tuple[int, int]]) -> None:
        """Records by partition and offset."""
        self._write("".join(f"seen {index} {offset}\n" for index, offset in records))

    def committed(self, following: Mapping[int, int]) -> None:
        """A commit was answered; partition to the offset that follows."""
        told = ",".join(f"{index}:{offset}" for index, offset in sorted(following.items()))
        self._write(f"committed {told}\n")

    def line(self, event: str, text: object = "") -> None:
        """Any other event."""
        self._write(f"{event} {text}".strip().replace("\n", " ") + "\n")


@dataclass
class History:
    """What one member's file tells."""

    owned: set[int] = field(default_factory=set)
    seen: list[tuple[int, int]] = field(default_factory=list)
    committed: dict[int, int] = field(default_factory=dict)
    #: Partition to the lowest offset that was committed behind a higher one of the same ownership.
    late: dict[int, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    fatal: str = ""
    left: bool = False
    changes: int = 0


def replay(history: History, lines: Iterable[str]) -> None:
    """Adds events to what is known."""
    for line in lines:
        event, _, rest = line.partition(" ")
        if event in ASSIGNMENT_EVENTS:
            indexes = {int(text) for text in rest.split(",") if text}
            history.changes += bool(indexes)
            history.owned -= indexes
            if event == "assigned":
                history.owned |= indexes
                for index in indexes:
                    history.committed.pop(index, None)
        elif event == "seen":
            index, offset = rest.split(" ")
            history.seen.append((int(index), int(offset)))
        elif event == "committed":
            for part in rest.split(","):
                _commit(history, *map(int, part.split(":")))
        elif event == "refused":
            history.refused.append(rest)
        elif event == "fatal":
            history.fatal = rest
        elif event == "left":
            history.left, history.owned = True, set()


def _commit(history: History, index: int, offset: int) -> None:
    if offset < history.committed.get(index, 0):
        history.late[index] = min(offset, history.late.get(index, offset))
    history.committed[index] = offset


def member_options() -> argparse.Namespace:
    """The command line that every member's program has."""
    parser = argparse.ArgumentParser()
    for option in ("--bootstrap", "--topic", "--group", "--client-id", "--history"):
        parser.add_argument(option, required=True)
    parser.add_argument("--commit", choices=["auto", "sync", "async"], default="sync")
    parser.add_argument("--assignor", default="range")
    parser.add_argument("--instance")
    parser.add_argument("--session-ms", type=int, default=6000)
    parser.add_argument("--consumer-protocol", action="store_true")
    return parser.parse_args()


def stop_flag() -> list[int]:
    """A list that is empty until SIGTERM comes."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    return stopping


def next_offsets(records: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Partition to what follows the last record of it."""
    following: dict[int, int] = {}
    for index, offset in records:
        following[index] = max(offset + 1, following.get(index, 0))
    return following
