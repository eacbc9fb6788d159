"""Decides which records compaction retains, from the newest offset of each key.

Bounds: the rows of all batches are checked against the columns before any row is read.
"""

from __future__ import annotations

import cython

# Whether a record is retained, or why it is discarded; cleaner/record_filter.py lists all.
KEPT = 0
SUPERSEDED = 1
TOMBSTONE = 2
KEYLESS = 4

# The rule for a batch's records: retain all; retain the newest of each key; the same, but discard
# tombstones.
RETAIN_ALL = 0
RETAIN_NEWEST = 1
DISCARD_TOMBSTONES = 2


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _retention(
    key_size: cython.int,
    value_size: cython.int,
    offset: cython.longlong,
    newest: cython.longlong,
    latest: cython.longlong,
    rule: cython.int,
) -> cython.uchar:
    if rule == 0 or offset > latest:
        return 0
    if key_size < 0:
        return 4
    if offset < newest:
        return 1
    if rule == 2 and value_size < 0:
        return 2
    return 0


def filter_records(
    spans: cython.const[cython.int][:, ::1],
    offsets: cython.const[cython.longlong][::1],
    newest: cython.const[cython.longlong][::1],
    first_row: cython.const[cython.longlong][::1],
    rules: cython.const[cython.schar][::1],
    latest: cython.longlong,
    retentions: cython.uchar[::1],
    keep: cython.uchar[::1],
    has_tombstone: cython.uchar[::1],
    counts: cython.longlong[::1],
) -> None:
    """Writes the retention of each of the n rows to ``retentions``, whether the row is retained to
    ``keep``, and whether each of the b batches retains a tombstone to ``has_tombstone``; ``rules``
    has one rule per batch. Adds the number of rows of each retention to ``counts``.

    ``newest``: the offset of each row's key in the offset map, -1 for none; ``latest``: the offset
    up to which the map covers the log.
    """
    batch: cython.Py_ssize_t
    row: cython.Py_ssize_t
    batches: cython.Py_ssize_t = rules.shape[0]
    rows: cython.Py_ssize_t = retentions.shape[0]
    retention: cython.uchar
    tombstone: cython.uchar
    rule: cython.int
    if first_row.shape[0] != batches + 1 or has_tombstone.shape[0] < batches:
        raise ValueError("not as many batches as rules for them")
    if spans.shape[0] < rows or spans.shape[1] < 4 or keep.shape[0] < rows:
        raise ValueError("columns of different lengths")
    if counts.shape[0] <= 4:
        raise ValueError("too few columns to count retentions in")
    if offsets.shape[0] < rows or newest.shape[0] < rows:
        raise ValueError("columns of different lengths")
    if first_row[0] < 0 or first_row[batches] > rows:
        raise ValueError("a batch's rows lie outside the columns")
    for batch in range(batches):
        if first_row[batch] > first_row[batch + 1]:
            raise ValueError("a batch's rows lie outside the columns")
    with cython.nogil:
        for batch in range(batches):
            rule = rules[batch]
            tombstone = 0
            for row in range(first_row[batch], first_row[batch + 1]):
                retention = _retention(
                    spans[row, 1], spans[row, 3], offsets[row], newest[row], latest, rule
                )
                retentions[row] = retention
                keep[row] = retention == 0
                counts[retention] += 1
                tombstone |= (retention == 0) & (spans[row, 3] < 0)
            has_tombstone[batch] = tombstone
