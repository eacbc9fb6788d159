"""Formats the steps of a lookup as text, for `kafkafs explain`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from kafkafs.storage import (
    BatchHeader,
    BrokerStep,
    ExplainedLookup,
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


def lines_of(found: ExplainedLookup) -> Iterator[str]:
    """Yields the report as lines of text."""
    yield (
        f"{found.topic}-{found.partition} in {found.path}: "
        f"offsets {found.start_offset} to {found.end_offset - 1}, {found.isolation}"
        if found.end_offset > found.start_offset
        else f"{found.topic}-{found.partition} in {found.path}: no records"
    )
    for number, (heading, below) in enumerate(_paragraphs(found), 1):
        yield f"{number}. {heading}"
        yield from (f"     {text}" for text in below)


def _paragraphs(found: ExplainedLookup) -> Iterator[Paragraph]:
    walked = [step.batch for step in found.steps if isinstance(step, WalkStep)]
    indexed = False
    for is_walk, group in groupby(found.steps, lambda step: isinstance(step, WalkStep)):
        if is_walk:
            yield _walk([step for step in group if isinstance(step, WalkStep)], indexed)
            indexed = False
            continue
        for step in group:
            indexed = indexed or isinstance(step, OffsetIndexStep)
            yield _step(found, step, walked)
    if found.error is not None:
        yield f"Not served: {found.error}", []
    elif found.found is None:
        yield (
            f"Nothing found: no visible record is from {time_text(found.timestamp)} or later",
            [],
        )


def _step(found: ExplainedLookup, step: Step, walked: Sequence[BatchHeader]) -> Paragraph:
    if isinstance(step, SegmentStep):
        return _segment(found, step)
    if isinstance(step, TimeIndexStep):
        return _time_index(step)
    if isinstance(step, OffsetIndexStep):
        return _offset_index(step)
    if isinstance(step, FoundStep):
        return _found(step, walked)
    assert isinstance(step, BrokerStep)
    answer = "finds nothing" if step.offset < 0 else f"answers offset {step.offset}"
    return f"A broker {answer}: {step.why}", []


def _segment(found: ExplainedLookup, step: SegmentStep) -> Paragraph:
    where = f"Segment {step.base_offset}{' in remote storage' if step.is_remote else ''}"
    if not found.by_time:
        why = f"greatest base offset at or below {found.offset}"
        return f"{where}: {why}", [step.file]
    below = f"largest timestamp {step.largest_timestamp} ({time_text(step.largest_timestamp)})"
    if step.skipped:
        below += f", older segments skipped: {step.skipped}"
    heading = f"{where}: largest timestamp at or after the target"
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
