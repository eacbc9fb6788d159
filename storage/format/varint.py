"""Encodes and decodes Kafka's varints: zigzag, then groups of seven bits, lowest first.

Rule: Kafka `ByteUtils.writeVarint` and `writeVarlong`.
"""

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


def encode_varint(value: int) -> bytes:
    """Encodes a signed 32-bit number in 1 to 5 bytes. Raises ValueError out of range."""
    if not INT32_MIN <= value <= INT32_MAX:
        raise ValueError(f"{value} does not fit a varint of 32 bits")
    return _groups((value << 1) ^ (value >> 31))


def encode_varlong(value: int) -> bytes:
    """Encodes a signed 64-bit number in 1 to 10 bytes. Raises ValueError out of range."""
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError(f"{value} does not fit a varint of 64 bits")
    return _groups((value << 1) ^ (value >> 63))


def _groups(unsigned: int) -> bytes:
    # Python's shifts keep the sign, so the zigzag number is never negative here.
    if unsigned < 0x80:
        return bytes((unsigned,))
    out = bytearray()
    while unsigned >= 0x80:
        out.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    out.append(unsigned)
    return bytes(out)


def read_varint(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """Returns the varint at ``data[at]`` and the position after it. Raises IndexError if it is
    truncated; does not check its length. Kernels decode, and check, the varints of whole batches.

    Bits above 32 are dropped, as in Kafka.
    """
    return _read(data, at, 0xFFFFFFFF)


def read_varlong(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """Like ``read_varint``, for 64 bits."""
    return _read(data, at, 0xFFFFFFFFFFFFFFFF)


def _read(data: bytes | bytearray | memoryview, at: int, mask: int) -> tuple[int, int]:
    unsigned = shift = 0
    while True:
        byte = data[at]
        at += 1
        unsigned |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            unsigned &= mask
            return (unsigned >> 1) ^ -(unsigned & 1), at
