"""The result of a job: rows for a table, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a job.

    `rows` are its summary, all with the keys `columns`, mostly one for each partition. `wrong` is
    what the job found damaged or could not do, mappings that all have a `what`; if there are any,
    the exit code is 1. `skipped`: the number of units of work, of `units` in total, that an earlier
    run had finished.
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
