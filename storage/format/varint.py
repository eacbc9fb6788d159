"""Kafka's variable-length integers: zigzag, then groups of seven bits, lowest first.

Rule: Kafka `ByteUtils.writeVarint` and `writeVarlong`.
"""

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


def encode_varint(value: int) -> bytes:
    """A signed 32-bit number in 1 to 5 bytes. ValueError outside that range."""
    if not INT32_MIN <= value <= INT32_MAX:
        raise ValueError(f"{value} does not fit a varint of 32 bits")
    return _groups((value << 1) ^ (value >> 31))


def encode_varlong(value: int) -> bytes:
    """A signed 64-bit number in 1 to 10 bytes. ValueError outside that range."""
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError(f"{value} does not fit a varint of 64 bits")
    return _groups((value << 1) ^ (value >> 63))


def _groups(unsigned: int) -> bytes:
    # Python's shifts keep the sign, so zigzag never gives a negative number here.
    if unsigned < 0x80:
        return bytes((unsigned,))
    out = bytearray()
    while unsigned >= 0x80:
        out.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    out.append(unsigned)
    return bytes(out)


def read_varint(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """The varint at ``data[at]`` and the position after it, for single values; runs of records are
    the kernels' work, which also check what this takes for granted: that it is whole.

    Bits above 32 are dropped, as Kafka does.
    """
    return _read(data, at, 0xFFFFFFFF)


def read_varlong(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """The same for 64 bits."""
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
