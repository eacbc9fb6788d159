"""Writes the records of one range of offsets to files, one for each period of their timestamps.

Files are written under names that readers of such trees ignore, and renamed when they are complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from ...format.layout import NO_TIMESTAMP
from ...format.primitives import random_uuid_text
from ...format.records.batch import Int64s
from ...format.records.columns import Columns
from ...io.durable import TEMPORARY_SUFFIX, WritableDirFd, WritableFile
from ..offset_ranges import OffsetRange
from .description import NO_DATE, file_name, topic_dir
from .record_files import FileWriter, MakeForm, record_file
from .request import Format, Period

_PERIOD_MS: Final[dict[Period, int]] = {"date": 86_400_000, "hour": 3_600_000}
_HOURS: Final = 24
_NO_PERIOD: Final = np.iinfo(np.int64).min
# Files that one unit keeps open; unordered timestamps may span many periods.
_MOST_OPEN: Final = 64
# Bytes of records that they hold in memory together.
_MOST_HELD: Final = 64 << 20


def period_dir(number: int, by: Period) -> str:
    """Returns the directory of a period, counted from 1970 on; _NO_PERIOD for records without a
    timestamp."""
    if number == _NO_PERIOD:
        return f"date={NO_DATE}/hour={NO_DATE}" if by == "hour" else f"date={NO_DATE}"
    if by == "date":
        return f"date={np.datetime64(number, 'D')}"
    day, hour = divmod(number, _HOURS)
    return f"date={np.datetime64(day, 'D')}/hour={hour:02}"


def by_period(columns: Columns, by: Period) -> Iterator[tuple[int, Columns]]:
    """Yields the rows of each period (UTC). Most timestamps ascend, so that there are few."""
    periods: Int64s = columns.timestamps // _PERIOD_MS[by]
    periods[columns.timestamps == NO_TIMESTAMP] = _NO_PERIOD
    bounds = [0, *(np.flatnonzero(np.diff(periods)) + 1).tolist(), len(columns)]
    firsts = periods[bounds[:-1]].tolist() if len(columns) else []
    found = list(dict.fromkeys(firsts))
    if len(found) == len(firsts):  # each is in one piece
        for number, (low, high) in zip(firsts, pairwise(bounds), strict=False):
            yield number, columns.slice(low, high)
        return
    for number in found:
        yield number, columns.where(periods == number)


@dataclass(slots=True)
class _Open:
    """A file being written, in the directory `place` below the output. `present`: the name that
    it has at present."""

    place: str
    name: str
    present: str
    file: WritableFile
    records: FileWriter


class UnitFiles:
    """The files of one range while they are being written. `records`, `first_offset`,
    `last_offset`: of what has been written so far, -1 without any."""

    def __init__(
        self,
        output: WritableDirFd,
        each: OffsetRange,
        format: Format,
        by: Period,
        form: MakeForm,
    ) -> None:
        self.records = 0
        self.first_offset = self.last_offset = -1
        self._output = output
        self._range = each
        self._format: Format = format
        self._by: Period = by
        self._form = form(each.topic, each.partition)
        self._attempt = random_uuid_text()
        self._open: dict[int, _Open] = {}  # by period
        self._closed: list[_Open] = []
        self._numbers: dict[int, int] = {}

    def write(self, columns: Columns) -> None:
        """Adds records, which must come in order."""
        for period, rows in by_period(columns, self._by):
            self._file(period).records.write(rows)
            self._flush_large()
        if len(columns):
            self.records += len(columns)
            if self.first_offset < 0:
                self.first_offset = int(columns.offsets[0])
            self.last_offset = int(columns.offsets[-1])

    def _flush_large(self) -> None:
        files = [each.records for each in self._open.values()]
        if len(files) > 1 and sum(each.held for each in files) > _MOST_HELD:
            max(files, key=lambda each: each.held).flush()

    def _file(self, period: int) -> _Open:
        found = self._open.get(period)
        if found is None:
            if len(self._open) >= _MOST_OPEN:
                self._close(next(iter(self._open)))
            found = self._open[period] = self._begin(period)
        return found

    def _begin(self, period: int) -> _Open:
        number = self._numbers[period] = self._numbers.get(period, -1) + 1
        name = file_name(self._range, number, self._format)
        place = f"{topic_dir(self._range.topic)}/{period_dir(period, self._by)}"
        present = f".{name}.{self._attempt}{TEMPORARY_SUFFIX}"
        file = made_below(self._output, place).create(present)
        return _Open(place, name, present, file, record_file(self._format, file, self._form))

    def _close(self, period: int) -> None:
        each = self._open[period]
        each.records.close()
        each.file.sync()
        self._closed.append(self._open.pop(period))

    def finish(self) -> list[dict[str, Any]]:
        """Renames the files to their final names, durably; returns their members in the unit's
        note, with paths relative to the output."""
        for period in list(self._open):
            self._close(period)
        found = []
        for each in self._closed:
            directory = below(self._output, each.place)
            directory.rename(each.present, each.name)
            each.present = each.name
            directory.sync()
            path = f"{each.place}/{each.name}"
            size, checksum = each.file.size(), each.records.checksum
            rows = each.records.rows
            found.append({"path": path, "rows": rows, "bytes": size, "crc32c": checksum})
        return found

    def discard(self) -> None:
        """Removes the files, also those that have their final names already."""
        for each in (*self._open.values(), *self._closed):
            with suppress(Exception):  # whatever is in the file is given up
                each.records.abandon()
            with suppress(OSError):
                below(self._output, each.place).remove(each.present, missing_ok=True)


def below(directory: WritableDirFd, path: str) -> WritableDirFd:
    """Returns the directory at a path below another one, reached without symbolic links."""
    for name in path.split("/"):
        directory = directory.child(name)
    return directory


def made_below(directory: WritableDirFd, path: str) -> WritableDirFd:
    """Returns the same, created durably where it is missing."""
    for name in path.split("/"):
        with suppress(FileExistsError):
            directory.make(name)
            directory.sync()
        directory = directory.child(name)
    return directory
