"""Recovers partitions after a crash, or previews the recovery.

Opening directories for writing recovers them, so the plans of a recovery come from there; a preview
makes the same plans and does not apply them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..config.kafka import broker_config
from ..errors import CorruptError, SegmentGone
from ..format.files.names import TopicPartition
from ..io.retry import retry_if_gone
from ..log.load.log_loader import LogLoader, RecoveryPlan
from ..log_dirs.engine import Engine
from .request import (
    SILENT,
    PartitionFailed,
    PartitionsRequest,
    ProgressListener,
    per_partition,
    writable,
)


@dataclass(frozen=True, slots=True)
class Recover(PartitionsRequest):
    """Recovers directories as a whole or, with `dry_run`, previews the recovery of the selected
    partitions."""

    dry_run: bool = False

    @property
    def writes(self) -> bool:
        return not self.dry_run


@dataclass(frozen=True, slots=True)
class RecoveredPartition:
    """What recovery does, or did, to a partition: its `actions` in words, and the `faults` that
    cause truncations."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    recovery_point: int
    segments: int
    actions: tuple[str, ...]
    faults: tuple[CorruptError, ...]

    @classmethod
    def of(cls, key: TopicPartition, plan: RecoveryPlan) -> RecoveredPartition:
        return cls(
            *key,
            plan.start_offset,
            plan.end_offset,
            plan.recovery_point,
            len(plan.segments),
            tuple(map(str, plan.actions)),
            plan.faults,
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "startOffset": self.start_offset,
            "endOffset": self.end_offset,
            "recoveryPoint": self.recovery_point,
            "segments": self.segments,
            "actions": list(self.actions),
            "faults": [
                {"file": fault.file, "position": fault.position, "what": fault.what}
                for fault in self.faults
            ],
        }

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> RecoveredPartition:
        """Restores an object from the result of `as_json`."""
        faults = (
            CorruptError(each["what"], each["file"], each["position"]) for each in row["faults"]
        )
        return cls(
            row["topic"],
            row["partition"],
            row["startOffset"],
            row["endOffset"],
            row["recoveryPoint"],
            row["segments"],
            tuple(row["actions"]),
            tuple(faults),
        )


def recover(
    engine: Engine, request: Recover, progress: ProgressListener = SILENT
) -> Iterator[RecoveredPartition | PartitionFailed]:
    """Yields what opening each partition for writing would do to it; see `recovered` for what it
    did. If a running broker removes a file of it, the plan is made again."""

    def work(key: TopicPartition) -> Iterator[RecoveredPartition]:
        try:
            yield RecoveredPartition.of(key, retry_if_gone(lambda: _planned(engine, key)))
        except SegmentGone:
            engine.partition_dir(*key)  # raises UnknownPartition if it was deleted
            raise

    return per_partition(engine, request, "reading partitions", work, progress)


def recovered(
    plans: Mapping[TopicPartition, RecoveryPlan], engine: Engine
) -> Iterator[RecoveredPartition | PartitionFailed]:
    """Yields what opening the directories for writing did, given its `plans`, and what it could not
    open."""
    yield from (RecoveredPartition.of(key, plans[key]) for key in sorted(plans))
    for failure in writable(engine).failures:
        yield PartitionFailed(failure, "StorageError")


def _planned(engine: Engine, key: TopicPartition) -> RecoveryPlan:
    try:
        return plan_for(engine, *key)
    except FileNotFoundError as error:
        raise SegmentGone(str(error.filename)) from None


def plan_for(
    engine: Engine, topic: str, partition: int, is_clean: bool | None = None
) -> RecoveryPlan:
    """Returns what opening a partition for writing would do to it, without changing anything. If
    `is_clean` is None, the directory's own state is used."""
    found = engine.partition_dir(topic, partition)
    log_dir = found.log_dir
    loader = LogLoader(
        found.directory,
        log_dir.recovery_points.get((topic, partition), 0),
        log_dir.log_start_offsets.get((topic, partition), 0),
        log_dir.is_clean if is_clean is None else is_clean,
        engine.topic_config(topic).config,
        engine.clock.now_ms(),
        engine.context.limits,
        broker_config(engine.configs).producer_id_expiration_ms,
    )
    return loader.plan()
