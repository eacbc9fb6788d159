"""Searches the entries of an index by an ascending field.

Bounds: every slot that is read is below ``count``, which is checked against the memory.
"""

from __future__ import annotations

import cython


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _field(
    memory: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, width: cython.Py_ssize_t
) -> cython.longlong:
    """Reads the signed big-endian number of ``width`` bytes, at most 8, at ``at``."""
    value: cython.longlong = memory[at]
    i: cython.Py_ssize_t
    if value > 127:
        value -= 256
    for i in range(1, width):
        value = value * 256 + memory[at + i]
    return value


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _bisect(
    memory: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    width: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    low: cython.Py_ssize_t,
    high: cython.Py_ssize_t,
    target: cython.longlong,
) -> cython.Py_ssize_t:
    """Returns the greatest slot in [``low``, ``high``] whose field is <= ``target``, or ``low``."""
    middle: cython.Py_ssize_t
    while low < high:
        middle = low + (high - low + 1) // 2
        if _field(memory, middle * size + at, width) <= target:
            low = middle
        else:
            high = middle - 1
    return low


@cython.ccall
@cython.returns(cython.Py_ssize_t)
def floor_slot(
    memory: cython.const[cython.uchar][::1],
    count: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    at: cython.Py_ssize_t,
    width: cython.Py_ssize_t,
    target: cython.longlong,
    warm: cython.Py_ssize_t,
):
    """Returns the greatest of ``count`` slots of ``size`` bytes whose field is <= ``target``, -1 if
    there is none; the field has ``width`` bytes from byte ``at`` on. If the fields do not ascend,
    the result is any slot or -1.

    Like Kafka's ``AbstractIndex.indexSlotRangeFor``, tries the last ``warm`` slots first, and
    bisects the cold rest only for a target before them.
    """
    first: cython.Py_ssize_t
    if (
        count < 0
        or at < 0
        or warm < 0
        or not 0 < width <= 8
        or size < at + width
        or count > memory.shape[0] // size
    ):
        raise ValueError("no such entries in this memory")
    if count == 0:
        return -1
    first = max(0, count - 1 - warm)
    if _field(memory, first * size + at, width) < target:
        return _bisect(memory, at, width, size, first, count - 1, target)
    if _field(memory, at, width) > target:
        return -1
    return _bisect(memory, at, width, size, 0, first, target)


def enclosing(
    memory: cython.const[cython.uchar][::1],
    count: cython.Py_ssize_t,
    target: cython.longlong,
    warm: cython.Py_ssize_t,
) -> tuple[int, int, int, int]:
    """Returns relative offset and position of the greatest entry with an offset <= ``target`` in an
    offset index of ``count`` entries, and the positions of the two entries after it, -1 for a
    missing one. Offset and position are 0 if there is no such entry, or if it cannot be right
    because it and its neighbours do not ascend."""
    slot: cython.Py_ssize_t = floor_slot(memory, count, 8, 0, 4, target, warm)
    offset: cython.longlong = 0
    position: cython.longlong = 0
    first: cython.longlong = -1
    second: cython.longlong = -1
    if slot + 1 < count:
        first = _field(memory, slot * 8 + 12, 4)
    if slot + 2 < count:
        second = _field(memory, slot * 8 + 20, 4)
    if slot >= 0:
        offset = _field(memory, slot * 8, 4)
        position = _field(memory, slot * 8 + 4, 4)
        if (
            offset <= 0
            or position <= 0
            or (
                slot > 0
                and (
                    _field(memory, slot * 8 - 8, 4) >= offset
                    or _field(memory, slot * 8 - 4, 4) >= position
                )
            )
            or (
                slot + 1 < count
                and (first <= position or _field(memory, slot * 8 + 8, 4) <= offset)
            )
        ):
            offset = 0
            position = 0
    return offset, position, first, second
