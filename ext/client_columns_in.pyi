TIME_SCALES: dict[bytes, int]
BYTE_KINDS: dict[bytes, int]

class ColumnIn: ...
