"""Reads bytes that may be text: words of eight bytes, UTF-8."""

from __future__ import annotations

import cython


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def little_endian(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.ulonglong:
    """Reads the eight bytes at ``at``."""
    if cython.compiled:
        # Written out with a single pointer so that C compilers turn it into one load.
        first: cython.p_uchar = cython.cast(cython.p_uchar, cython.address(data[at]))
        return (
            cython.cast(cython.ulonglong, first[0])
            | cython.cast(cython.ulonglong, first[1]) << 8
            | cython.cast(cython.ulonglong, first[2]) << 16
            | cython.cast(cython.ulonglong, first[3]) << 24
            | cython.cast(cython.ulonglong, first[4]) << 32
            | cython.cast(cython.ulonglong, first[5]) << 40
            | cython.cast(cython.ulonglong, first[6]) << 48
            | cython.cast(cython.ulonglong, first[7]) << 56
        )
    return int.from_bytes(data[at : at + 8], "little")


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def utf8_length(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.int:
    """Returns the size of the non-ASCII character at ``at``, 0 if it is not UTF-8 (RFC 3629:
    neither over-long forms nor surrogates)."""
    first: cython.int = data[at]
    second: cython.int
    need: cython.int
    i: cython.int
    if first < 0xC2 or first > 0xF4:
        return 0
    need = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if end - at < need:
        return 0
    second = data[at + 1]
    if (
        (first == 0xE0 and second < 0xA0)
        or (first == 0xED and second > 0x9F)
        or (first == 0xF0 and second < 0x90)
        or (first == 0xF4 and second > 0x8F)
    ):
        return 0
    for i in range(1, need):
        if (data[at + i] & 0xC0) != 0x80:
            return 0
    return need
