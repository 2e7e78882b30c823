from collections.abc import Callable
from typing import final

@final
class Unasked:
    unseen: Callable[[Exception, str, int], object] | None
    @property
    def waits(self) -> bool: ...
    def tell(self) -> None: ...
    def end(self) -> None: ...
