"""The checksums that Kafka's formats use.

CRC-32C is in magic 2 and producer snapshots, CRC-32 in magic 0 and 1, xxHash in lz4 frames.
``crc32c`` uses the processor's instruction if available (measured: 24-33 GB/s) and a table
otherwise; it takes any buffer and releases the GIL.
"""

from __future__ import annotations

import zlib
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Final, Protocol

import xxhash

if TYPE_CHECKING:
    import crc32c as _crc32c
else:

    def _extension() -> ModuleType:
        """Loads the extension module of crc32c alone: to know its version, the package imports
        importlib.metadata, which takes a tenth of the time in which `kafkafs cat` starts."""
        package = find_spec("crc32c")
        assert package is not None
        spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        assert spec is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    _crc32c = _extension()

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
