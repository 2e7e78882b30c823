"""How long an append of the control thread may wait for room in the journal."""

from __future__ import annotations

from typing import Final

from kbroker.errors import ErrorCode, code_of

_WAIT_MS: Final = 500


class RoomWait:
    """Half a second; but not at all while the last append has waited in vain. A disk that hangs
    would else hold the thread for as long with each."""

    def __init__(self) -> None:
        self._last = ErrorCode.NONE

    @property
    def ms(self) -> int:
        """For the next append."""
        return 0 if self._last is ErrorCode.REQUEST_TIMED_OUT else _WAIT_MS

    def failed(self, error: BaseException) -> bool:
        """An append was refused; True where the one before it was not, or for another reason: that
        is worth a line in the log."""
        last, self._last = self._last, code_of(error)
        return self._last is not last

    def done(self) -> None:
        """An append was taken."""
        self._last = ErrorCode.NONE
