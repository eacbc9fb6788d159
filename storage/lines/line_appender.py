"""Appends lines to a partition as records, chunk by chunk, up to the first invalid one."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import BadLine, Refused
from ..format.records.record_columns import RecordColumns
from .text_input import LineParser


class LineAppender:
    """Appends chunks of lines. `lines`: the number appended so far."""

    def __init__(self, parse: LineParser, append: Callable[[RecordColumns], object]) -> None:
        """`append` appends all of the given records, or raises and appends none."""
        self._parse = parse
        self._append = append
        self.lines = 0

    def append(self, data: bytes) -> None:
        """Appends all lines in `data`; the last one may lack its line end. Raises BadLine if a line
        is not a record or is refused; the lines before it are appended. Errors of `append`
        propagate."""
        parsed = self._parse(data)
        records = parsed.records
        self._append_up_to_refusal(records)
        if parsed.error is not None:
            raise BadLine(self.lines + 1, parsed.error)

    def _append_up_to_refusal(self, records: RecordColumns) -> None:
        if not len(records):
            return
        try:
            self._append(records)
        except Refused as refused:
            if len(records) == 1:
                raise BadLine(self.lines + 1, refused) from None
            # If a refusal names no record, bisecting finds it.
            cut = refused.index if 0 < refused.index < len(records) else len(records) // 2
            self._append_up_to_refusal(records.slice(0, cut))
            self._append_up_to_refusal(records.slice(cut, len(records)))
        else:
            self.lines += len(records)
