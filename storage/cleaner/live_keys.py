"""Lists the latest records of all keys in a fixed amount of memory.

The log is read twice: for the latest offset of each key, and for the records at these offsets. If
the map cannot hold all keys, it is filled with one class of hashes after the other, and the set of
offsets found so far is copied for each class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..errors import ConfigError
from ..format.records.batch import Int32s
from ..format.records.columns import KEY_SIZE, VALUE_SIZE, Columns
from ..log.read.transactions import Isolation
from ..log.read.view import View
from .kept_offsets import KeptOffsets
from .offset_map import CLASSES, OffsetMap

# A map's initial memory; it doubles as needed.
FIRST_BYTES: Final = 1 << 20


def live_keys(
    view: View, isolation: Isolation, most_bytes: int, with_tombstones: bool = False
) -> KeptOffsets:
    """Returns the offsets of the records that are the latest of their keys; tombstones are included
    only with `with_tombstones`. Skips damaged records.

    Uses at most `most_bytes` for keys. Raises ConfigError if not even one class of them fits.
    """
    found = KeptOffsets()
    found.finish()
    keys = OffsetMap(min(FIRST_BYTES, most_bytes))
    pending = [(0, CLASSES)]
    while pending:
        low, high = pending.pop()
        keys.clear()
        filled = _filled(keys, view, isolation, (low, high), most_bytes)
        if filled is not None:
            keys = filled
            found = _with_latest(found, keys, view, isolation, (low, high), with_tombstones)
        elif high - low == 1:
            raise ConfigError("kafkafs.key.cache.bytes", f"{most_bytes} are too few for these keys")
        else:
            middle = (low + high) // 2
            pending += [(middle, high), (low, middle)]
    return found


def _filled(
    keys: OffsetMap, view: View, isolation: Isolation, classes: tuple[int, int], most_bytes: int
) -> OffsetMap | None:
    """Returns `keys`, or a larger map, with all keys of [`classes`); None if there are too many."""
    for part in _columns(view, isolation):
        spans = _of_classes(keys, part, classes)
        row = 0
        while (row := keys.put(part.data, spans, part.offsets, row)) < len(part):
            nbytes = keys.larger_bytes(most_bytes)
            if nbytes is None:
                return None
            keys = keys.moved_to(nbytes)
    return keys


def _with_latest(
    found: KeptOffsets,
    keys: OffsetMap,
    view: View,
    isolation: Isolation,
    classes: tuple[int, int],
    with_tombstones: bool,
) -> KeptOffsets:
    """Returns `found` and the offsets of values, and optionally tombstones, that are the latest
    according to `keys`."""
    more = KeptOffsets()
    for part in _columns(view, isolation):
        is_latest = keys.get(part.data, _of_classes(keys, part, classes)) == part.offsets
        if not with_tombstones:
            is_latest &= part.spans[:, VALUE_SIZE] >= 0
        more.add(part.offsets[is_latest | found.mask(part.offsets)])
    more.finish()
    return more


def _columns(view: View, isolation: Isolation) -> Iterator[Columns]:
    for part in view.scan(view.start_offset, view.bound(isolation), isolation):
        if isinstance(part, Columns):
            yield part


def _of_classes(keys: OffsetMap, columns: Columns, classes: tuple[int, int]) -> Int32s:
    """Returns the spans of columns, with the keys of other classes set to null."""
    low, high = classes
    if (low, high) == (0, CLASSES):
        return columns.spans
    spans = columns.spans.copy()
    of_row = keys.classes(columns.data, spans)
    spans[(of_row < low) | (of_row >= high), KEY_SIZE] = -1
    return spans
