"""Explains how a record is found: every step of a lookup by offset or by time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from ..errors import CorruptError, OffsetNotFound, StorageError
from ..format.records.batch import BatchHeader
from ..io.retry import retry_if_gone
from ..log.read.explain import (
    BrokerStep,
    FoundStep,
    OffsetIndexStep,
    SegmentStep,
    Step,
    TimeIndexStep,
    WalkStep,
    explain_offset,
    explain_time,
)
from ..log.read.log import Log
from ..log.read.transactions import Isolation
from ..log.read.view import View
from ..log_dirs.engine import Engine
from .request import SILENT, PartitionFailed, ProgressListener


@dataclass(frozen=True, slots=True)
class Explain:
    """Explains the lookup of an offset or a timestamp (ms), the other being -1, or of a `link`,
    "first" or "last"."""

    topic: str
    partition: int
    offset: int = -1
    timestamp: int = -1
    link: str = ""
    isolation: Isolation = Isolation.READ_COMMITTED

    @property
    def writes(self) -> bool:
        return False

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises UnknownTopic or UnknownPartition."""
        engine.partition_dir(self.topic, self.partition)
        return ()


@dataclass(frozen=True, slots=True)
class ExplainedLookup:
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


def explain(
    engine: Engine, request: Explain, progress: ProgressListener = SILENT
) -> Iterator[ExplainedLookup]:
    """Yields the explanation. Raises OSError or SegmentGone as reading does."""
    log = engine.log(request.topic, request.partition)
    yield retry_if_gone(lambda: _explained(log, request))


def _explained(log: Log, request: Explain) -> ExplainedLookup:
    view = log.view()
    request = _resolved(request, view)
    report = ExplainedLookup(
        topic=log.topic,
        partition=log.partition,
        path=log.path,
        start_offset=view.start_offset,
        end_offset=view.end_offset,
        isolation=request.isolation.value,
        offset=request.offset,
        timestamp=request.timestamp,
        steps=[],
    )
    try:  # the steps before an error remain in the report
        if report.by_time:
            report.steps.extend(explain_time(view, request.timestamp, request.isolation))
        else:
            report.steps.extend(explain_offset(view, request.offset, request.isolation))
    except (OffsetNotFound, CorruptError) as error:
        return replace(report, error=error)
    return report


def _resolved(request: Explain, view: View) -> Explain:
    """Returns the request with its link resolved to an offset. If no record is visible, that is the
    log start or end offset, at which the lookup fails."""
    if not request.link:
        return request
    is_last = request.link == "last"
    found = view.last(request.isolation) if is_last else view.first(request.isolation)
    if found is None:
        found = view.end_offset if is_last else view.start_offset
    return replace(request, offset=found)


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
