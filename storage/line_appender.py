"""Lines, piece by piece, as records of a partition, up to the first that is none."""

from __future__ import annotations

from collections.abc import Callable

from .errors import BadLine, Refused
from .format.encoder import RecordColumns
from .format.text_input import Parse


class LineAppender:
    """Appends the lines that it is given. `lines`: how many it has appended."""

    def __init__(self, parse: Parse, append: Callable[[RecordColumns], object]) -> None:
        """`append` appends all of some records, or raises and appends none."""
        self._parse = parse
        self._append = append
        self.lines = 0

    def append(self, data: bytes) -> None:
        """Appends all lines in `data`; the last one may lack its end. BadLine when one is no record
        or is refused: what was before it is appended. Errors of `append`."""
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
            # Of a refusal that names no record, which one it is shows in the smaller half.
            cut = refused.index if 0 < refused.index < len(records) else len(records) // 2
            self._append_up_to_refusal(records.slice(0, cut))
            self._append_up_to_refusal(records.slice(cut, len(records)))
        else:
            self.lines += len(records)
