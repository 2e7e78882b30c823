from typing import final

@final
class LateAppend:
    @property
    def done(self) -> bool: ...
    def result(self) -> tuple[int, int]: ...
