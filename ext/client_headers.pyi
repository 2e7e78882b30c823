from typing import Self, final

@final
class HeadersIn:
    def __new__(cls, given: object) -> Self: ...
