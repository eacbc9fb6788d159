"""Computes SipHash-2-4 with an output of 128 bits."""

from __future__ import annotations

import cython

from ._text import little_endian


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def low_64_bits(number: cython.ulonglong) -> cython.ulonglong:
    """Returns the lowest 64 bits; a C number has no others."""
    if not cython.compiled:
        return number & ((1 << 64) - 1)
    return number


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _rotated(number: cython.ulonglong, bits: cython.int) -> cython.ulonglong:
    return low_64_bits(number << bits) | (number >> (64 - bits))


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.ulonglong, cython.ulonglong, cython.ulonglong, cython.ulonglong))
def _round(a: cython.ulonglong, b: cython.ulonglong, c: cython.ulonglong, d: cython.ulonglong):
    """Does one SipRound."""
    a = low_64_bits(a + b)
    c = low_64_bits(c + d)
    b = _rotated(b, 13) ^ a
    d = _rotated(d, 16) ^ c
    a = low_64_bits(_rotated(a, 32) + d)
    c = low_64_bits(c + b)
    b = _rotated(b, 17) ^ c
    d = _rotated(d, 21) ^ a
    return a, b, _rotated(c, 32), d


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.ulonglong, cython.ulonglong))
def siphash_128(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    key_low: cython.ulonglong,
    key_high: cython.ulonglong,
):
    """Computes SipHash-2-4 with an output of 128 bits. ``data[at : at + size]`` must exist."""
    a: cython.ulonglong = 0x736F6D6570736575  # "somepseudorandomlygeneratedbytes"
    b: cython.ulonglong = 0x646F72616E646F6D
    c: cython.ulonglong = 0x6C7967656E657261
    d: cython.ulonglong = 0x7465646279746573
    end: cython.Py_ssize_t = at + size
    word: cython.ulonglong
    low: cython.ulonglong
    i: cython.Py_ssize_t
    _: cython.int
    a ^= key_low
    b ^= key_high
    b ^= 0xEE
    c ^= key_low
    d ^= key_high
    while end - at >= 8:
        word = little_endian(data, at)
        at += 8
        d ^= word
        a, b, c, d = _round(a, b, c, d)
        a, b, c, d = _round(a, b, c, d)
        a ^= word
    word = low_64_bits(cython.cast(cython.ulonglong, size) << 56)
    for i in range(end - at):
        word |= cython.cast(cython.ulonglong, data[at + i]) << (8 * i)
    d ^= word
    a, b, c, d = _round(a, b, c, d)
    a, b, c, d = _round(a, b, c, d)
    a ^= word
    c ^= 0xEE
    for _ in range(4):
        a, b, c, d = _round(a, b, c, d)
    low = a ^ b ^ c ^ d
    b ^= 0xDD
    for _ in range(4):
        a, b, c, d = _round(a, b, c, d)
    return low, a ^ b ^ c ^ d
