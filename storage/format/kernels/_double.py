"""Writes doubles as Python's ``repr`` does: the fewest digits that mean the same number.

The digits are found by Raffaello Giulietti's Schubfach ("The Schubfach way to render doubles",
2020), in the form of Alexander Bolz's Drachennest. It needs the powers of ten from 10^-292 to
10^324, each as the upper and lower 64 bits of the smallest 128-bit number that is not less, scaled
to begin with a one bit. Uncompiled, ``repr`` itself is called.
"""

from __future__ import annotations

import cython

from ._text import write_int

if cython.compiled:
    from cython.cimports.libc.string import memcpy

LEAST_POWER = cython.declare(cython.int, -292)
POWERS = cython.declare(cython.int, 617)
#: The most bytes that ``write_double`` writes: -1.2345678901234567e-308
DOUBLE_BYTES = cython.declare(cython.int, 24)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _upper_product(a: cython.ulonglong, b: cython.ulonglong) -> cython.ulonglong:
    """Returns the upper 64 bits of the product."""
    low: cython.ulonglong = 0xFFFFFFFF
    middle: cython.ulonglong = (a >> 32) * (b & low) + (((a & low) * (b & low)) >> 32)
    other: cython.ulonglong = (a & low) * (b >> 32) + (middle & low)
    return (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _scaled(
    upper: cython.ulonglong, lower: cython.ulonglong, number: cython.ulonglong
) -> cython.ulonglong:
    """Returns the number multiplied by a power of ten, without its lower 128 bits: rounded to odd,
    so that it still compares right with numbers between two integers."""
    rest: cython.ulonglong = upper * number
    whole: cython.ulonglong = _upper_product(upper, number)
    carry: cython.ulonglong = _upper_product(lower, number)
    rest = rest + carry
    if rest < carry:
        whole += 1
    return whole | (rest > 1)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.ulonglong, cython.int))
def _shortest(bits: cython.ulonglong, powers: cython.const[cython.ulonglong][:, ::1]):
    """Returns the digits of a positive number, and the power of ten by which to multiply them."""
    fraction: cython.ulonglong = bits & ((cython.cast(cython.ulonglong, 1) << 52) - 1)
    biased: cython.int = cython.cast(cython.int, bits >> 52)
    number: cython.ulonglong = fraction
    exponent: cython.int = -1074
    power: cython.int
    shift: cython.int
    row: cython.Py_ssize_t
    is_closer: cython.int = fraction == 0 and biased > 1  # the next number below, than that above
    is_odd: cython.int
    if biased != 0:
        number = fraction | (cython.cast(cython.ulonglong, 1) << 52)
        exponent = biased - 1075
        if (
            0 <= -exponent < 53
            and (number & ((cython.cast(cython.ulonglong, 1) << -exponent) - 1)) == 0
        ):
            return number >> -exponent, 0
    is_odd = number & 1
    # The logarithms of 2^exponent and of 3/4 of it to base 10, rounded down.
    power = (exponent * 1262611 - (524031 if is_closer else 0)) >> 22
    shift = exponent + ((-power * 1741647) >> 19) + 1
    row = -power - LEAST_POWER
    if not (0 <= row < powers.shape[0] and 1 <= shift <= 4):
        return 0, 0  # cannot be
    upper: cython.ulonglong = powers[row, 0]
    lower: cython.ulonglong = powers[row, 1]
    # Four times the number, and the bounds of what is read as the same one.
    least: cython.ulonglong = _scaled(upper, lower, (4 * number - 2 + is_closer) << shift) + is_odd
    middle: cython.ulonglong = _scaled(upper, lower, (4 * number) << shift)
    most: cython.ulonglong = _scaled(upper, lower, (4 * number + 2) << shift) - is_odd
    digits: cython.ulonglong = middle // 4
    fewer: cython.ulonglong = digits // 10
    is_below: cython.bint
    is_above: cython.bint
    if digits >= 10:
        is_below = least <= 40 * fewer
        is_above = 40 * fewer + 40 <= most
        if is_below != is_above:
            return fewer + is_above, power + 1
    is_below = least <= 4 * digits
    is_above = 4 * digits + 4 <= most
    if is_below != is_above:
        return digits + is_above, power
    middle = middle - 4 * digits
    return digits + (middle > 2 or (middle == 2 and (digits & 1) != 0)), power


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _zeros(count: cython.int, out: cython.uchar[::1], at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    while count > 0:
        out[at] = 48
        at += 1
        count -= 1
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def put_point(
    point: cython.Py_ssize_t, end: cython.Py_ssize_t, out: cython.uchar[::1]
) -> cython.Py_ssize_t:
    """Inserts a point before the digits from ``point`` to ``end``."""
    i: cython.Py_ssize_t = end
    while i > point:
        out[i] = out[i - 1]
        i -= 1
    out[point] = 46
    return end + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _layout(
    digits: cython.ulonglong,
    power: cython.int,
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes digits times a power of ten: with an exponent below 0.0001 and from 1e16 on."""
    start: cython.Py_ssize_t = at
    point: cython.int
    exponent: cython.int
    while digits % 100 == 0:
        digits = digits // 100
        power += 2
    if digits % 10 == 0:
        digits = digits // 10
        power += 1
    at = write_int(cython.cast(cython.longlong, digits), out, at)
    point = cython.cast(cython.int, at - start) + power  # where the point is, from the first digit
    if -4 < point <= 0:
        at = write_int(cython.cast(cython.longlong, digits), out, start + 2 - point)
        out[start] = 48
        out[start + 1] = 46
        _zeros(-point, out, start + 2)
        return at
    if 0 < point <= 16:
        if power < 0:
            return put_point(start + point, at, out)
        at = _zeros(power, out, at)
        out[at] = 46
        out[at + 1] = 48
        return at + 2
    if at - start > 1:
        at = put_point(start + 1, at, out)
    exponent = point - 1
    out[at] = 101
    out[at + 1] = 45 if exponent < 0 else 43
    at += 2
    if exponent < 0:
        exponent = -exponent
    if exponent < 10:
        at = _zeros(1, out, at)
    return write_int(exponent, out, at)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_double(
    bits: cython.ulonglong,
    powers: cython.const[cython.ulonglong][:, ::1],
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes a double that is neither infinite nor NaN, and returns the position after it."""
    digits: cython.ulonglong
    power: cython.int
    if not cython.compiled:
        import struct  # here, as what precedes `import cython` is not pasted

        text = repr(struct.unpack("<d", struct.pack("<Q", bits))[0]).encode()
        out[at : at + len(text)] = text
        return at + len(text)
    if bits >> 63:
        out[at] = 45
        at += 1
        bits = bits & ((cython.cast(cython.ulonglong, 1) << 63) - 1)
    if bits == 0:
        out[at] = 48
        out[at + 1] = 46
        out[at + 2] = 48
        return at + 3
    digits, power = _shortest(bits, powers)
    return _layout(digits, power, out, at)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def widened(bits: cython.uint) -> cython.ulonglong:
    """Returns the bits of a float as those of the double with the same value."""
    single: cython.float = 0
    double: cython.double = 0
    wide: cython.ulonglong = 0
    if not cython.compiled:
        import struct

        [value] = struct.unpack("<f", struct.pack("<I", bits))
        return int.from_bytes(struct.pack("<d", value), "little")
    memcpy(cython.address(single), cython.address(bits), 4)
    double = single
    memcpy(cython.address(wide), cython.address(double), 8)
    return wide
