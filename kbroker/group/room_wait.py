"""How long an append of the control thread may wait for room in the journal."""

from __future__ import annotations

from typing import Final

from kbroker.errors import ErrorCode, code_of

_WAIT_MS: Final = 500


class RoomWait:
    """Half a second; but not at all while the last append to that log directory has waited in vain.
    A disk that hangs would else hold the thread for as long with each."""

    def __init__(self) -> None:
        self._last: dict[int, ErrorCode] = {}

    def ms(self, directory: int) -> int:
        """For the next append there."""
        return 0 if self._last.get(directory) is ErrorCode.REQUEST_TIMED_OUT else _WAIT_MS

    def failed(self, directory: int, error: BaseException) -> bool:
        """An append was refused; True where the one before it was not, or for another reason: that
        is worth a line in the log."""
        last, self._last[directory] = self._last.get(directory), code_of(error)
        return self._last[directory] is not last

    def done(self, directory: int) -> None:
        """An append was taken."""
        self._last.pop(directory, None)
