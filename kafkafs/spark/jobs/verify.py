"""The `verify` job: checks every batch, record and index of every segment against Kafka's rules.

It maps the units of the operation (`storage.operations.verify`) to tasks, in two rounds: segments,
then partitions. The findings are those of `kafkafs verify`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from kafkafs.storage import (
    Decoder,
    Finding,
    Notes,
    PartitionDir,
    PartitionResult,
    SegmentDigest,
    SegmentResult,
    SegmentUnit,
    Selected,
    TopicPartition,
    Verifier,
    check_partition,
    check_segment,
    local_path,
    segments_of,
)

from ..read.planning import refuse_within_log_dir
from .job_log_dirs import JobLogDirs
from .report import Report, Row
from .tasks import OnProgress, collect, silent, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_COLUMNS: Final = ("topic", "partition", "segments", "bytes", "findings")


def verify(
    spark: SparkSession,
    log_dirs: str | Sequence[str],
    topics: Sequence[Selected] = (),
    *,
    configs: Mapping[str, str] | None = None,
    state: str | None = None,
    on_progress: OnProgress = silent,
) -> Report:
    """Checks `log_dirs`, or the selected `topics` (and partitions). With a directory `state`,
    segments that an earlier run noted there are not read again."""
    if state is not None:
        state = os.path.abspath(local_path(state))
    dirs = JobLogDirs.of(log_dirs, configs)
    engine = dirs.engine()
    verifier = Verifier(engine)
    beside = list(verifier.directories())
    partitions = dirs.partitions(topics) if topics else list(engine.log_dirs.partitions().values())
    metadata = {_key(found): list(verifier.metadata(found)) for found in partitions}
    units = [unit for found in partitions for unit in segments_of(engine, _key(found))]
    notes = None
    if state is not None:
        refuse_within_log_dir(state, dirs.log_dirs)
        notes, _ = Notes.of_job(state, {"job": "verify", "log_dirs": list(dirs.log_dirs)})
    checked = spread(spark, units, lambda unit: unit.size).flatMap(partial(_check, dirs, notes))
    judged = (
        checked.keyBy(_key_of)
        .groupByKey(_reducers(spark, partitions))
        .map(partial(_judge, dirs, str(uuid.uuid4())))
    )
    found = {result.key: result for result in collect(spark, "verify", judged, on_progress)}
    return _report(partitions, units, beside if not topics else [], metadata, found)


def _key(found: PartitionDir) -> TopicPartition:
    return found.topic, found.partition


def _reducers(spark: SparkSession, partitions: Sequence[PartitionDir]) -> int:
    """Returns the number of tasks that check whole partitions."""
    return max(min(len(partitions), 4 * spark.sparkContext.defaultParallelism), 1)


# -- in the tasks ----------------------------------------------------------------------------------


def _check(
    dirs: JobLogDirs, notes: Notes | None, units: Sequence[SegmentUnit]
) -> Iterator[SegmentResult]:
    engine = dirs.engine()
    decoder = Decoder(engine.context.limits.max_batch_bytes)
    for unit in units:
        noted = notes.get(unit.name) if notes is not None and unit.facts is not None else None
        if noted is not None:
            yield SegmentResult(unit, SegmentDigest.from_json(noted), is_old=True)
            continue
        checked = check_segment(engine, unit, decoder)
        if notes is not None and checked.digest is not None and checked.is_settled:
            notes.put(unit.name, checked.digest.as_json())
        yield checked


def _key_of(checked: SegmentResult) -> TopicPartition:
    return checked.unit.key


@dataclass(frozen=True, slots=True)
class Judged:
    """A checked partition, and how many of its segments were noted by an earlier run."""

    key: TopicPartition
    found: PartitionResult
    skipped: int


def _judge(
    dirs: JobLogDirs, job: str, group: tuple[TopicPartition, Sequence[SegmentResult]]
) -> Judged:
    """Checks a partition against the rules across its segments."""
    key, checked = group[0], list(group[1])
    found = check_partition(dirs.engine(), _verifier(dirs, job), checked)
    return Judged(key, found, sum(each.is_old for each in checked))


@lru_cache(maxsize=1)
def _verifier(dirs: JobLogDirs, job: str) -> Verifier:
    """Returns a verifier that has read the small files; the process uses it for all partitions of a
    job."""
    verifier = Verifier(dirs.engine())
    list(verifier.directories())
    return verifier


# -- the report ------------------------------------------------------------------------------------


def _report(
    partitions: Sequence[PartitionDir],
    units: Sequence[SegmentUnit],
    beside: Sequence[Finding],
    metadata: Mapping[TopicPartition, Sequence[Finding]],
    judged: Mapping[TopicPartition, Judged],
) -> Report:
    rows: list[Row] = []
    wrong: list[Row] = [finding.as_json() for finding in beside]
    segments: dict[TopicPartition, list[SegmentUnit]] = {}
    for unit in units:
        segments.setdefault(unit.key, []).append(unit)
    for found in partitions:
        key = _key(found)
        those = [unit for unit in segments[key] if unit.facts is not None]
        result = judged[key].found
        findings = [*metadata[key], *result.findings]
        wrong += [finding.as_json() for finding in findings]
        wrong += [{"topic": key[0], "partition": key[1], "what": what} for what in result.errors]
        size = sum(unit.size for unit in those)
        values = (*key, len(those), size, len(findings) + len(result.errors))
        rows.append(dict(zip(_COLUMNS, values, strict=True)))
    return Report(
        "verify",
        _COLUMNS,
        rows,
        wrong,
        units=len(units),
        skipped=sum(result.skipped for result in judged.values()),
        totals={"partitions": len(rows), "bytes": sum(unit.size for unit in units)},
    )
