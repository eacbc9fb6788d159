"""What a job found or did: rows for a table, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Report:
    """The end of a job.

    `rows` are its summary, all with the keys `columns`: a row for each partition, mostly. `wrong`
    is what the job found broken or could not do, a mapping each that has a `what`; with any, the
    exit code is 1. `skipped`: units of work that an earlier run had finished, of `units` in all.
    """

    job: str
    columns: Sequence[str]
    rows: Sequence[Row] = ()
    wrong: Sequence[Row] = ()
    units: int = 0
    skipped: int = 0
    totals: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        return 1 if self.wrong else 0
