"""Batches that were tampered with."""

from __future__ import annotations

from kafkafs.storage.format.checksum import crc32c
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.building import BatchFields, build_batch


def forged_pair(second_offset: int = 1, timestamp: int = 1_790_000_000_000) -> bytes:
    """Returns batches of one record at offset 0 and one at `second_offset`. Neither matches its
    checksum, but the CRC of all bytes is what it would be if both did."""
    first, second = (
        build_batch([SimpleRecord(timestamp, b"k", bytes(8))], BatchFields(base_offset=offset))
        for offset in (0, second_offset)
    )
    data = bytearray(first + second)
    whole = crc32c(data)
    data[len(first) - 5] ^= 1  # the last bytes but one are those of the value
    _make_up_for(data, len(data) - 9, whole)
    assert crc32c(data) == whole
    return bytes(data)


def _make_up_for(data: bytearray, at: int, wanted: int) -> None:
    """Changes the four bytes at `at` so that all bytes have the CRC `wanted`, which is linear in
    them."""
    basis: dict[int, tuple[int, int]] = {}  # by its highest bit: a change of the CRC, and its cause
    before = crc32c(data)
    for bit in range(32):
        changed = bytearray(data)
        changed[at + bit // 8] ^= 1 << bit % 8
        effect, bits = crc32c(changed) ^ before, 1 << bit
        while effect and (found := basis.get(effect.bit_length())):
            effect, bits = effect ^ found[0], bits ^ found[1]
        basis[effect.bit_length()] = effect, bits
    missing, chosen = before ^ wanted, 0
    while missing:
        effect, bits = basis[missing.bit_length()]
        missing, chosen = missing ^ effect, chosen ^ bits
    for byte in range(4):
        data[at + byte] ^= chosen >> 8 * byte & 0xFF
