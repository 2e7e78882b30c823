"""CRC-32C one bit at a time, as RFC 3720 appendix B.4 defines it."""

POLYNOMIAL_REFLECTED = 0x82F63B78


def crc32c(data: bytes, crc: int = 0) -> int:
    """Checksum of data, or of what has the checksum `crc` followed by data."""
    remainder = crc ^ 0xFFFFFFFF
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            odd = remainder & 1
            remainder >>= 1
            if odd:
                remainder ^= POLYNOMIAL_REFLECTED
    return remainder ^ 0xFFFFFFFF
