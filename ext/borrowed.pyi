from typing import Self

class Borrowed:
    def __new__(cls, data: bytes | bytearray | memoryview, writable: bool = False) -> Self: ...
