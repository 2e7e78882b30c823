"""One partition of `__consumer_offsets`, and the replies of its requests.

Owned by the control thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kbroker.errors import ClientError, ErrorCode
from kbroker.group.loading import Piece
from kbroker.group.outcome import Answer, Now, Response, send_when_durable
from kbroker.group.shard import Shard
from kbroker.group.slot_loads import ACTIVE, FAILED, LOADING
from kbroker.operations import Completion
from kbroker.storage.manager import LogPort

if TYPE_CHECKING:
    from kbroker.group.records import Records
    from kbroker.group.rooms import Rooms

_LOG: Final = logging.getLogger("kbroker.group")


class Slot:
    """One partition: its log, its rooms, and the requests that wait for an answer."""

    def __init__(
        self, partition: int, furnish: Callable[[], tuple[Rooms, Records]]
    ) -> None:
        """`furnish` makes what the partition is loaded into."""
        self.partition = partition
        self.name = f"__consumer_offsets-{partition}"
        self.log: LogPort | None = None
        """None until it is made."""
        self.waiting: set[SlotReply] = set()
        self.appended = 0
        """Order of the last append among those of all slots; the journal syncs in that order."""
        self._furnish = furnish
        self.paused = False
        """Its last append is under way on a slow disk (kbroker.group.pauses)."""
        self.resumed: Completion[None] = Completion.of(None)
        self.missed: list[Callable[[Now], None]] = []
        """What is to be done once it goes on."""
        self.begin()

    def begin(self) -> None:
        """Nothing is known of it: it is to be loaded, for the first time or once more."""
        self.state = LOADING
        self.rooms, self.records = self._furnish()
        self._problems = 0

    @property
    def passed_over(self) -> int:
        """What of the log could not be read."""
        return self._problems + self.records.damaged

    @property
    def serves(self) -> bool:
        """Whether it can be changed now."""
        return self.state == ACTIVE and not self.paused

    @property
    def shard(self) -> Shard:
        """What its rooms share."""
        return self.rooms.shard

    def check_active(self) -> None:
        """Refuse requests while the slot cannot answer. Raises ClientError."""
        if self.state == LOADING:
            raise ClientError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if self.state == FAILED:
            raise ClientError(ErrorCode.NOT_COORDINATOR)
        if self.paused:
            raise ClientError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def send(self, answer: Answer, response: Response) -> None:
        """Answer when all that was appended is durable."""
        timeout_ms = self.shard.settings.offsets_commit_timeout_ms
        send_when_durable([] if self.log is None else [self.log], answer, response, timeout_ms)

    def take(self, piece: Piece) -> None:
        """Fold a piece of the partition into the state."""
        if self.state != LOADING:
            return
        for offset, key, value in piece.others:
            record = self.records.decode(offset, key, value)
            if record is None:
                continue
            try:
                self.shard.replay(record)
            except Exception as error:
                self.records.tell_damaged(offset, f"{type(error).__name__}: {error}")
        offsets = self.rooms.offsets
        for group, topic, partition, data in piece.commits:
            offsets.put(group, topic, partition, data)
        for producer_id, effective, group, topic, partition, data in piece.pending:
            offsets.put_pending(producer_id, (group, topic, partition), data if effective else None)
        self._problems += piece.problem_count

    def loaded(self) -> str:
        """All was taken: what may be wrong by what was passed over."""
        return "groups and offsets are as the records that are left have them"


class SlotReply:
    """Answers one request of a slot, once; where `gated`, when the slot's log is durable."""

    __slots__ = ("_answer", "_gated", "_given_up", "_slot", "done")

    def __init__(self, slot: Slot, answer: Answer, gated: bool) -> None:
        self._slot = slot
        self._answer: Answer | None = answer
        self._gated = gated
        self._given_up = False
        self.done = False

    def __call__(self, response: Response) -> None:
        answer = self._take()
        if answer is None:
            return
        if self._gated:
            self._slot.send(answer, response)
        else:
            answer.send(response)

    def drop(self) -> None:
        """The request is answered by who hands it on; whoever kept this reply calls it in vain."""
        self._answer = None
        self._slot.waiting.discard(self)

    def fail(self, code: ErrorCode) -> None:
        """Answer with an error of the whole request."""
        answer = self._take()
        if answer is not None:
            answer.fail(code)

    def give_up(self, code: ErrorCode) -> None:
        """Answer with an error now; what the operation answers later comes in vain."""
        if not self.done:
            self.fail(code)
        self._given_up = True

    def _take(self) -> Answer | None:
        if self._given_up:
            return None
        if self.done:
            _LOG.error("a group request was answered twice", stack_info=True)
            return None
        self.done = self._answer is not None
        self._slot.waiting.discard(self)
        return self._answer
