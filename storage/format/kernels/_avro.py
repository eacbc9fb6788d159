"""What the kernels of Avro share: why a datum does not fit, how numbers are read, and the check
of the tables that a schema becomes (see ``avro.py``)."""

from __future__ import annotations

import cython

from ._text import little_endian

NODE_COLUMNS = cython.declare(cython.int, 4)
#: The values inside each other that a datum may have; unions count.
MAX_DEPTH = cython.declare(cython.int, 256)

# Why a walk ended, in place of a position; callers have a text for each.
TRUNCATED = cython.declare(cython.int, -1)
BAD_INT = cython.declare(cython.int, -2)
BAD_BOOLEAN = cython.declare(cython.int, -3)
BAD_SIZE = cython.declare(cython.int, -4)
BAD_SYMBOL = cython.declare(cython.int, -5)
BAD_BRANCH = cython.declare(cython.int, -6)
BAD_TEXT = cython.declare(cython.int, -7)
TOO_DEEP = cython.declare(cython.int, -8)
TOO_MANY_EMPTY = cython.declare(cython.int, -9)
BYTES_LEFT = cython.declare(cython.int, -10)
TOO_MANY_VALUES = cython.declare(cython.int, -11)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def float_bits(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    return (
        cython.cast(cython.longlong, data[at])
        | cython.cast(cython.longlong, data[at + 1]) << 8
        | cython.cast(cython.longlong, data[at + 2]) << 16
        | cython.cast(cython.longlong, data[at + 3]) << 24
    )


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def double_bits(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    bits: cython.ulonglong = little_endian(data, at)
    if cython.compiled:
        return cython.cast(cython.longlong, bits)
    return bits - ((bits >> 63) << 64)


def check_tables(
    nodes: cython.const[cython.longlong][:, ::1],
    links: cython.const[cython.longlong][::1],
    root: cython.Py_ssize_t,
) -> None:
    """Raises ValueError if a row or link leads outside the tables."""
    rows: cython.longlong = nodes.shape[0]
    count: cython.longlong = links.shape[0]
    i: cython.Py_ssize_t
    is_right: cython.bint = nodes.shape[1] == NODE_COLUMNS and 0 <= root < rows
    for i in range(rows if is_right else 0):
        kind: cython.longlong = nodes[i, 0]
        a: cython.longlong = nodes[i, 1]
        b: cython.longlong = nodes[i, 2]
        if kind == 12 or kind == 13:
            is_right = is_right and a >= 0 and b >= 0 and a <= count - b
        elif kind == 10 or kind == 14:
            is_right = is_right and 0 <= a < rows
        elif kind == 11:
            is_right = is_right and 0 <= a < rows and 0 <= b < rows
        elif kind == 8:
            is_right = is_right and a >= 0
        else:
            is_right = is_right and 0 <= kind < 10
    for i in range(count):
        is_right = is_right and 0 <= links[i] < rows
    if not is_right:
        raise ValueError("a row of the tables leads outside them")
