"""The checksums that Kafka's formats use.

CRC-32C is in magic 2 and producer snapshots, CRC-32 in magic 0 and 1, xxHash in lz4 frames.
``crc32c`` uses the processor's instruction if available (measured: 24-33 GB/s) and a table
otherwise; it takes any buffer and releases the GIL.
"""

from __future__ import annotations

import zlib
from typing import Final, Protocol

import crc32c as _crc32c
import xxhash

Bytes = bytes | bytearray | memoryview


class Checksum(Protocol):
    """Computes the checksum of ``data`` as an unsigned 32-bit number, continuing from ``value``,
    the checksum of the bytes before it."""

    def __call__(self, data: Bytes, value: int = 0, /) -> int: ...


# CRC-32C (Castagnoli). This is the library's own function, because a wrapper would cost as much as
# the checksum of a small batch.
crc32c: Final[Checksum] = _crc32c.crc32c


def crc32c_implementation() -> str:
    """Returns "hardware" if the processor's instruction computes CRC-32C, else "software"."""
    return "hardware" if _crc32c.hardware_based else "software"


# CRC-32 (zlib).
crc32: Final[Checksum] = zlib.crc32


def xxh32(data: Bytes) -> int:
    """Returns the xxHash of ``data``, seed 0, as an unsigned 32-bit number."""
    return xxhash.xxh32_intdigest(data)
