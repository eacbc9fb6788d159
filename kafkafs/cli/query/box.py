"""A result as a box that fits the terminal."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import pyarrow as pa

from kafkafs.storage import printable

from ..support.output import padded, width
from .cells import as_text, python_values, type_name

#: The rows that are shown; a result with more is not computed to its end.
ROWS: Final = 100
# No column is made narrower than this, and none is wider than that.
_NARROW, _WIDE = 6, 80
_NULL: Final = "NULL"
_MORE: Final = "…"


def box(batches: Iterable[pa.RecordBatch], columns: int | None = None) -> Iterator[str]:
    """Yields the first rows of a result as lines, at most `columns` wide (the terminal's, if None),
    and a line that says how many there are, if not all are shown that there are more. Cells and
    columns for which there is no room end with, or are, `…`."""
    schema, rows, has_more = _first_rows(batches)
    if not len(schema):
        return
    right = [pa.types.is_integer(f.type) or pa.types.is_floating(f.type) for f in schema]
    right = [each or pa.types.is_decimal(f.type) for each, f in zip(right, schema, strict=True)]
    heads = [printable(name) for name in schema.names]
    types = [type_name(field.type) for field in schema]
    table = [heads, types, *rows]
    widths = _fitting(
        [min(max(map(width, cells)), _WIDE) for cells in zip(*table, strict=True)],
        columns or shutil.get_terminal_size((120, 50)).columns,
    )
    right = right[: len(widths)]
    if len(widths) < len(heads):
        right[-1] = False
        table = [[*row[: len(widths) - 1], _MORE] for row in table]
    yield _rule("┌┬┐", widths)
    for number, row in enumerate(table):
        cells = [
            padded(_cut(cell, room), room, right=is_right and number > 1)
            for cell, room, is_right in zip(row, widths, right, strict=True)
        ]
        yield f"│ {' │ '.join(cells)} │"
        if number == 1:
            yield _rule("├┼┤", widths)
    yield _rule("└┴┘", widths)
    if has_more:
        yield f"the first {len(rows)} rows; there are more (--format or -o writes all)"
    elif len(rows) != 1:
        yield f"{len(rows)} rows"


def _first_rows(
    batches: Iterable[pa.RecordBatch],
) -> tuple[pa.Schema, list[list[str]], bool]:
    schema = pa.schema([])
    rows: list[list[str]] = []
    for batch in batches:
        schema = batch.schema
        some = batch.slice(0, ROWS + 1 - len(rows))
        # By column: names need not be unique.
        columns = [python_values(some.column(number)) for number in range(len(schema))]
        rows.extend([_cell(value) for value in row] for row in zip(*columns, strict=True))
        if len(rows) > ROWS:
            return schema, rows[:ROWS], True
    return schema, rows, False


def _cell(value: object) -> str:
    return _NULL if value is None else printable(as_text(value))


def _fitting(widths: Sequence[int], room: int) -> list[int]:
    """Returns widths of the columns that fit; the last is that of `…` if they do not all."""
    found = list(widths[: room // 4 + 1])
    while (excess := _total(found) - room) > 0 and max(found) > _NARROW:
        widest = max(found)
        second = max((each for each in found if each < widest), default=_NARROW)
        least = max(second, _NARROW, widest - -(-excess // found.count(widest)))
        found = [min(each, least) for each in found]
    if len(found) == len(widths) and excess <= 0:
        return found
    count = len(found) - 1
    while count > 1 and _total([*found[:count], 1]) > room:
        count -= 1
    return [*found[:count], 1] if len(widths) > 1 else found


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 3 * len(widths) + 1


def _cut(text: str, room: int) -> str:
    if width(text) <= room:
        return text
    kept, used = [], 0
    for character in islice(text, room):
        used += width(character)
        if used >= room:
            break
        kept.append(character)
    return "".join(kept) + _MORE


def _rule(ends: str, widths: Sequence[int]) -> str:
    return ends[0] + ends[1].join("─" * (room + 2) for room in widths) + ends[2]
