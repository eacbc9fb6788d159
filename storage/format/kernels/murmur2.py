"""Hashes keys as Kafka's producers do (Utils.murmur2).

Bounds: a key's span is checked against ``data`` before any byte of it is read.
"""

from __future__ import annotations

import cython


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _times(number: cython.uint) -> cython.uint:
    """Returns the low 32 bits of the product with the murmur2 multiplier."""
    if cython.compiled:
        return number * cython.cast(cython.uint, 0x5BD1E995)
    return (number * 0x5BD1E995) % (1 << 32)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _byte(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.uint:
    return data[at]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _hash(
    data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.uint:
    # Cython treats a literal above 2**31 as a Python object.
    seed: cython.uint = (cython.cast(cython.uint, 0x9747) << 16) | 0xB28C
    result: cython.uint = seed ^ cython.cast(cython.uint, size)
    word: cython.uint
    at: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = start + size
    while end - at >= 4:
        word = _byte(data, at) | (_byte(data, at + 1) << 8)
        word |= (_byte(data, at + 2) << 16) | (_byte(data, at + 3) << 24)
        word = _times(word)
        word ^= word >> 24
        result = _times(result) ^ _times(word)
        at += 4
    if end - at == 3:
        result ^= _byte(data, at + 2) << 16
    if end - at >= 2:
        result ^= _byte(data, at + 1) << 8
    if end - at >= 1:
        result = _times(result ^ _byte(data, at))
    result ^= result >> 13
    result = _times(result)
    return result ^ (result >> 15)


def hashes(
    data: cython.const[cython.uchar][::1],
    starts: cython.const[cython.longlong][::1],
    sizes: cython.const[cython.longlong][::1],
    out: cython.longlong[::1],
) -> None:
    """Writes the 32-bit hash of each key to ``out`` as a non-negative number; -1 for null (a key
    of negative size). Raises ValueError if a key lies outside ``data``."""
    row: cython.Py_ssize_t
    rows: cython.Py_ssize_t = sizes.shape[0]
    bad: cython.bint = starts.shape[0] != rows or out.shape[0] != rows
    with cython.nogil:
        if not bad:
            for row in range(rows):
                if sizes[row] < 0:
                    out[row] = -1
                elif starts[row] < 0 or sizes[row] > data.shape[0] - starts[row]:
                    bad = True
                    break
                else:
                    out[row] = _hash(data, starts[row], sizes[row])
    if bad:
        raise ValueError("a key lies outside its buffer")
