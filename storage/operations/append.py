"""Appends lines of text, or JSON lines, to a partition as records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..errors import BadLine
from ..format.layout import Codec
from ..format.records.encoder import BatchPlan
from ..format.records.record_columns import RecordColumns
from ..lines import json_input, text_input
from ..lines.line_appender import LineAppender
from ..lines.text_input import LineParser
from ..log.append.appending import LogAppendInfo
from ..log_dirs.engine import Engine
from ..log_dirs.selection import Selection
from .request import PartitionFailed

#: What a line can be: a value (or a key, a separator and a value), or a record in JSON.
FORMATS: Final = ("lines", "jsonl")
CODECS: Final = tuple(codec.name.lower() for codec in Codec)
BATCH_BYTES: Final = 16384


@dataclass(frozen=True, slots=True)
class AppendLines:
    """Appends lines as records to a partition. Raises ValueError for an invalid argument.

    `key_separator`: separates key and value in a line, "" if lines are values. `batch_bytes`: the
    uncompressed size of a batch. `size`: the bytes of the lines; `lines`: how many lines of the
    same input were appended before. `sync`: flush the log afterwards.
    """

    topic: str = ""
    partition: int = -1
    form: str = FORMATS[0]
    key_separator: str = ""
    compression: str = CODECS[0]
    batch_bytes: int = BATCH_BYTES
    size: int = 0
    lines: int = 0
    sync: bool = False

    def __post_init__(self) -> None:
        if self.form not in FORMATS:
            raise ValueError(f"format must be {' or '.join(FORMATS)}")
        if self.compression not in CODECS:
            raise ValueError("compression must be none, gzip, snappy, lz4 or zstd")
        if self.batch_bytes < 1:
            raise ValueError("batchSize must be at least 1")

    @property
    def writes(self) -> bool:
        return True

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises UnknownTopic or UnknownPartition."""
        Selection(((self.topic, self.partition),)).partitions(engine.topics())
        return ()

    @property
    def plan(self) -> BatchPlan:
        return BatchPlan(batch_bytes=self.batch_bytes, codec=Codec[self.compression.upper()])

    @property
    def parse(self) -> LineParser:
        if self.form == "jsonl":
            return json_input.parse_json
        separator = self.key_separator.encode("utf-8", "surrogateescape")
        if not separator:
            return text_input.parse_values
        return lambda data: text_input.parse_keyed(data, separator)


@dataclass(frozen=True, slots=True)
class AppendedLines:
    """What was appended: the number of `records` and, unless that is 0, their offsets; else these
    are -1. `lines`: the number of lines of the whole input so far. `bad_line`: why the next one was
    not appended, with its number; else ""."""

    records: int
    first_offset: int
    last_offset: int
    lines: int
    bad_line: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "firstOffset": self.first_offset if self.records else None,
            "lastOffset": self.last_offset if self.records else None,
            **({"badLine": self.bad_line} if self.bad_line else {}),
            "lines": self.lines,
        }

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> AppendedLines:
        """Restores an object from the result of `as_json`."""
        first, last = row["firstOffset"], row["lastOffset"]
        if first is None:
            first = last = -1
        return cls(row["records"], first, last, row["lines"], row.get("badLine", ""))


def append_lines(
    append: Callable[[RecordColumns], LogAppendInfo], request: AppendLines, data: bytes
) -> AppendedLines:
    """Appends the lines in `data` by `append`, up to the first that is not a record or is refused.
    Only the last line may lack its line end. Errors of `append` propagate, except Refused."""
    done: list[tuple[int, LogAppendInfo]] = []

    def take(records: RecordColumns) -> None:
        done.append((len(records), append(records)))

    appender = LineAppender(request.parse, take)
    appender.lines = request.lines
    bad_line = ""
    try:
        appender.append(data)
    except BadLine as bad:
        bad_line = str(bad)
    first, last = (done[0][1].first_offset, done[-1][1].last_offset) if done else (-1, -1)
    return AppendedLines(sum(count for count, _ in done), first, last, appender.lines, bad_line)
