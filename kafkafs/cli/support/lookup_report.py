"""Formats the steps of a lookup as text and as JSON, for `kafkafs explain`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Final

from kafkafs.storage.errors import StorageError
from kafkafs.storage.format.records.batch import BatchHeader
from kafkafs.storage.log.read.explain import (
    BrokerStep,
    FoundStep,
    OffsetIndexStep,
    SegmentStep,
    Step,
    TimeIndexStep,
    WalkStep,
)

from .output import aligned, time_text

# The number of batches shown at either end of a long walk.
_SHOWN: Final = 5
# The heading of a step and the lines below it.
Paragraph = tuple[str, list[str]]


@dataclass(frozen=True, slots=True)
class LookupReport:
    """One lookup, of `offset` or of `timestamp` (ms); the other is -1. `error` is why no record is
    visible there; it is None also if no record has a timestamp that late."""

    topic: str
    partition: int
    path: str
    start_offset: int
    end_offset: int
    isolation: str
    offset: int
    timestamp: int
    steps: list[Step]
    error: StorageError | None = None

    @property
    def by_time(self) -> bool:
        return self.offset < 0

    @property
    def found(self) -> FoundStep | None:
        return next((step for step in self.steps if isinstance(step, FoundStep)), None)

    def lines(self) -> Iterator[str]:
        """Yields the report as lines of text."""
        yield (
            f"{self.topic}-{self.partition} in {self.path}: "
            f"offsets {self.start_offset} to {self.end_offset - 1}, {self.isolation}"
            if self.end_offset > self.start_offset
            else f"{self.topic}-{self.partition} in {self.path}: no records"
        )
        for number, (heading, below) in enumerate(self._paragraphs(), 1):
            yield f"{number}. {heading}"
            yield from (f"     {text}" for text in below)

    def as_json(self) -> dict[str, Any]:
        """Returns the report as JSON. Fields that do not apply to a step are absent; -1 is Kafka's
        "none"."""
        found = self.found
        return {
            "topic": self.topic,
            "partition": self.partition,
            "path": self.path,
            "isolation": self.isolation,
            **({"timestamp": self.timestamp} if self.by_time else {"offset": self.offset}),
            "steps": [_step_json(step) for step in self.steps],
            "found": None if found is None else found.offset,
            "error": None if self.error is None else str(self.error),
        }

    def _paragraphs(self) -> Iterator[Paragraph]:
        walked = [step.batch for step in self.steps if isinstance(step, WalkStep)]
        indexed = False
        for is_walk, group in groupby(self.steps, lambda step: isinstance(step, WalkStep)):
            if is_walk:
                yield _walk([step for step in group if isinstance(step, WalkStep)], indexed)
                indexed = False
                continue
            for step in group:
                indexed = indexed or isinstance(step, OffsetIndexStep)
                yield self._step(step, walked)
        if self.error is not None:
            yield f"Not served: {self.error}", []
        elif self.found is None:
            yield (
                f"Nothing found: no visible record is from {time_text(self.timestamp)} or later",
                [],
            )

    def _step(self, step: Step, walked: Sequence[BatchHeader]) -> Paragraph:
        if isinstance(step, SegmentStep):
            return self._segment(step)
        if isinstance(step, TimeIndexStep):
            return _time_index(step)
        if isinstance(step, OffsetIndexStep):
            return _offset_index(step)
        if isinstance(step, FoundStep):
            return _found(step, walked)
        assert isinstance(step, BrokerStep)
        answer = "finds nothing" if step.offset < 0 else f"answers offset {step.offset}"
        return f"A broker {answer}: {step.why}", []

    def _segment(self, step: SegmentStep) -> Paragraph:
        if not self.by_time:
            why = f"greatest base offset at or below {self.offset}"
            return f"Segment {step.base_offset}: {why}", [step.file]
        below = f"largest timestamp {step.largest_timestamp} ({time_text(step.largest_timestamp)})"
        if step.skipped:
            below += f", older segments skipped: {step.skipped}"
        heading = f"Segment {step.base_offset}: largest timestamp at or after the target"
        return heading, [step.file, below]


def _time_index(step: TimeIndexStep) -> Paragraph:
    if step.slot < 0:
        return f"Time index of {_entries(step.entries)}: no usable entry", [step.file]
    entry = f"({step.timestamp}, {step.relative_offset})"
    return (
        f"Time index, entry {step.slot + 1} of {step.entries}: {entry}",
        [
            step.file,
            f"the last entry before the target: {time_text(step.timestamp)} at offset "
            f"{step.offset}, relative {step.relative_offset}",
        ],
    )


def _offset_index(step: OffsetIndexStep) -> Paragraph:
    if step.refused:
        return (
            f"Offset index of {_entries(step.entries)}: rejected, "
            "walk from the start of the segment",
            [
                step.file,
                f"entry ({step.relative_offset}, {step.position}) points to no matching batch",
            ],
        )
    if step.slot < 0:
        return (
            f"Offset index of {_entries(step.entries)}: none at or below {step.target}, "
            "walk from the start of the segment",
            [step.file],
        )
    return (
        f"Offset index, entry {step.slot + 1} of {step.entries}: "
        f"({step.relative_offset}, {step.position})",
        [
            step.file,
            f"greatest at or below {step.target}: the batch at position {step.position} "
            f"ends with offset {step.offset}, relative {step.relative_offset}",
        ],
    )


def _walk(steps: Sequence[WalkStep], indexed: bool) -> Paragraph:
    start = steps[0].batch.position
    heading = f"Walk from position {start}" + ("" if indexed or start else ", without an index")
    rows = [_batch_row(step) for step in steps]
    lines = list(aligned(rows, right=(1, 3)))
    if len(lines) > 2 * _SHOWN + 1:
        left_out = f"… {len(lines) - 2 * _SHOWN} batches …"
        lines[_SHOWN:-_SHOWN] = [left_out]
    return heading, lines


def _batch_row(step: WalkStep) -> Sequence[str]:
    batch = step.batch
    if batch.record_count < 0:
        # A compressed batch of magic 0 or 1 does not expose its base offset and record count.
        offsets, records = f"offsets up to {batch.last_offset}:", ""
    else:
        offsets = f"offsets {batch.base_offset} to {batch.last_offset},"
        records = "1 record:" if batch.record_count == 1 else f"{batch.record_count} records:"
    return "position", f"{batch.position},", offsets, records, str(step.verdict)


def _found(step: FoundStep, walked: Sequence[BatchHeader]) -> Paragraph:
    place = f" of the batch at position {walked[-1].position}" if walked else ""
    return (
        f"Found: offset {step.offset}",
        [f"record {step.row + 1}{place}, timestamp {step.timestamp} ({time_text(step.timestamp)})"],
    )


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _step_json(step: Step) -> dict[str, Any]:
    if isinstance(step, WalkStep):
        return {"step": "walk", "verdict": step.verdict.name.lower(), **_batch_json(step.batch)}
    return {"step": _NAMES[type(step)], **dict(_camel(asdict(step).items()))}


_NAMES: Final[dict[type[Step], str]] = {
    SegmentStep: "segment",
    TimeIndexStep: "timeIndex",
    OffsetIndexStep: "offsetIndex",
    FoundStep: "found",
    BrokerStep: "broker",
}


def _batch_json(batch: BatchHeader) -> dict[str, Any]:
    return {
        "position": batch.position,
        "size": batch.size,
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "records": batch.record_count,
        "maxTimestamp": batch.max_timestamp,
        "magic": batch.magic,
        "codec": batch.codec.kafka_name,
    }


def _camel(fields: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    for name, value in fields:
        first, *more = name.split("_")
        yield first + "".join(word.capitalize() for word in more), value
