"""Computes the CRC-32C that consecutive batches must have together, from the CRCs in their headers.

One call of the checksum library then verifies all of them: it is faster on longer inputs, and lets
other threads run meanwhile. The CRC of two pieces follows from theirs: the first's times x to the
power of the second's length in bits, modulo the polynomial, plus the second's (zlib's
``crc32_combine``). Polynomials are numbers with the highest power in the lowest bit.

Bounds: a batch is read only after a check that it lies within ``data``.
"""

from __future__ import annotations

import cython


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _product(a: cython.uint, b: cython.uint) -> cython.uint:
    """Returns a times b modulo the polynomial."""
    polynomial: cython.uint = 0x82F63B78
    product: cython.uint = 0
    power: cython.int
    for power in range(31, -1, -1):
        if (a >> power) & 1:
            product ^= b
        if b & 1:
            b = (b >> 1) ^ polynomial
        else:
            b >>= 1
    return product


def prepare(steps: cython.uint[::1], powers: cython.uint[:, ::1]) -> None:
    """Fills the tables that ``combined`` needs. ``steps[n]``: the effect of byte n on a CRC.
    ``powers[i, n]``: x to the power of the number of bits in n * 256**i bytes."""
    n: cython.Py_ssize_t
    i: cython.Py_ssize_t
    one: cython.uint = 0x00800000
    if steps.shape[0] != 256 or powers.shape[0] != 4 or powers.shape[1] != 256:
        raise ValueError("tables have 256 columns, and four rows")
    for n in range(256):
        steps[n] = _product(cython.cast(cython.uint, n), one)
    for i in range(4):
        powers[i, 0] = 0x80000000
        for n in range(1, 256):
            powers[i, n] = _product(powers[i, n - 1], one)
        one = _product(powers[i, 255], one)


def combined(
    data: cython.const[cython.uchar][::1],
    base: cython.longlong,
    table: cython.const[cython.longlong][:, ::1],
    steps: cython.const[cython.uint][::1],
    powers: cython.const[cython.uint][:, ::1],
) -> int:
    """Returns the CRC-32C of all bytes from the first batch of ``table`` to the end of the last,
    provided that each batch matches the CRC in its header. ``data[0]`` is at file position
    ``base``. Returns -1 if there are no batches, they are not contiguous in ``data``, or one is
    not of magic 2."""
    batch: cython.Py_ssize_t
    batches: cython.Py_ssize_t = table.shape[0]
    at: cython.longlong
    size: cython.longlong
    following: cython.longlong = -1
    known_size: cython.longlong = -1
    i: cython.Py_ssize_t
    ones: cython.uint = 0xFFFFFFFF
    crc: cython.uint = 0
    power: cython.uint = 0
    if (
        table.shape[1] != 14
        or steps.shape[0] != 256
        or powers.shape[0] != 4
        or powers.shape[1] != 256
    ):
        raise ValueError("a table of too few columns")
    # Keeps the GIL: this finishes before another thread could acquire it.
    for batch in range(batches):
        at = table[batch, 0] - base
        size = table[batch, 1]
        if (
            table[batch, 5] != 2
            or at < 0
            or size < 61
            or size > 2147483647
            or at > data.shape[0] - size
            or (batch > 0 and at != following)
        ):
            following = -1
            break
        following = at + size
        crc ^= ones
        for i in range(21):  # the bytes that the CRC does not cover, and the CRC
            crc = steps[(crc ^ data[at + i]) & 255] ^ (crc >> 8)
        crc ^= ones
        size -= 21
        if size != known_size:
            known_size = size
            power = powers[0, size & 255]
            if size >> 8:
                power = _product(power, powers[1, (size >> 8) & 255])
            if size >> 16:
                power = _product(power, powers[2, (size >> 16) & 255])
                power = _product(power, powers[3, size >> 24])
        crc = _product(crc, power) ^ cython.cast(cython.uint, table[batch, 6])
    return -1 if following < 0 else crc
