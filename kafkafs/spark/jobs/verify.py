"""The `verify` job: checks every batch, record and index of every segment against Kafka's rules.

There are two rounds: tasks check each segment by itself; then, partition by partition, the rules
across segments are checked by means of the digests from the first round (see
`storage.segment.verify_digest`). The findings are those of `kafkafs verify`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from kafkafs.storage.errors import SegmentGone, UnknownPartition, UnknownTopic
from kafkafs.storage.format.files.names import METADATA_TOPIC, TopicPartition
from kafkafs.storage.format.records.decoder import Decoder
from kafkafs.storage.io.local_path import local_path
from kafkafs.storage.log.check.partition_listing import PartitionListing
from kafkafs.storage.log_dirs.log_dir import PartitionDir
from kafkafs.storage.log_dirs.selection import Selected
from kafkafs.storage.operations.verify import Verifier, fingerprint
from kafkafs.storage.segment.check.verify import SegmentCheck, SegmentFacts
from kafkafs.storage.segment.check.verify_digest import DigestCheck, SegmentDigest
from kafkafs.storage.segment.check.verify_index import Finding

from ..read.planning import refuse_within_log_dir
from .job_log_dirs import JobLogDirs
from .notes import Notes
from .report import Report, Row
from .tasks import OnProgress, collect, silent, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_COLUMNS: Final = ("topic", "partition", "segments", "bytes", "findings")


@dataclass(frozen=True, slots=True)
class VerifyUnit:
    """A segment to check, or (`facts` None) a partition that has none. `stops`: see SegmentDigest;
    a changed `mtime_ns` reveals a changed segment; `before` is the fingerprint of the partition's
    directory."""

    topic: str
    partition: int
    facts: SegmentFacts | None = None
    stops: tuple[int, ...] = ()
    mtime_ns: int = 0
    before: str | None = None

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def size(self) -> int:
        return self.facts.size if self.facts is not None else 0

    @property
    def name(self) -> str:
        """The unit name for its note, which differs if the segment has changed."""
        assert self.facts is not None
        files = " ".join(sorted(self.facts.files))
        facts = (self.facts.base_offset, self.size, self.facts.next_base, self.facts.is_closed)
        return f"{self.topic}-{self.partition} {facts} {files} {self.stops} {self.mtime_ns}"


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a unit. `digest`: None without a segment, or if it was deleted meanwhile.
    `error`: why it could not be read, else empty."""

    unit: VerifyUnit
    digest: SegmentDigest | None = None
    error: str = ""
    is_old: bool = False


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
    units = [unit for found in partitions for unit in _units(found)]
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


def _units(found: PartitionDir) -> Iterator[VerifyUnit]:
    """Yields the segments of a partition as they are now."""
    try:
        # The quorum's log is recovered at every start, even after a clean shutdown.
        is_closed = found.log_dir.is_clean and found.topic != METADATA_TOPIC
        before = fingerprint(found.directory)
        listing = PartitionListing(found.directory)
        start = found.log_dir.log_start_offsets.get(_key(found), 0)
        stops = listing.stops(start)
        segments = listing.segments(is_closed)
    except SegmentGone:
        segments, stops, listing, before = [], (), None, None
    for facts in segments:
        assert listing is not None
        yield VerifyUnit(*_key(found), facts, stops, listing.mtimes[facts.base_offset], before)
    if not segments:
        yield VerifyUnit(*_key(found))


# -- in the tasks ----------------------------------------------------------------------------------


def _check(dirs: JobLogDirs, notes: Notes | None, units: Sequence[VerifyUnit]) -> Iterator[Checked]:
    engine = dirs.engine()
    limit = engine.context.limits.max_batch_bytes
    decoder = Decoder(limit)
    for unit in units:
        if unit.facts is None:
            yield Checked(unit)
            continue
        if notes is not None and (noted := notes.get(unit.name)) is not None:
            yield Checked(unit, SegmentDigest.from_json(noted), is_old=True)
            continue
        try:
            directory = engine.partition_dir(*unit.key).directory
            check = SegmentCheck(directory, unit.facts, decoder, limit)
            digest = SegmentDigest.of(check, unit.facts, unit.stops)
        except (SegmentGone, UnknownPartition, UnknownTopic):
            yield Checked(unit)
            continue
        except OSError as error:
            yield Checked(unit, error=f"{error.filename}: {error.strerror}")
            continue
        # Findings made while a broker writes may not apply to any state of the segment.
        if notes is not None and (not digest.findings or fingerprint(directory) == unit.before):
            notes.put(unit.name, digest.as_json())
        yield Checked(unit, digest)


def _key_of(checked: Checked) -> TopicPartition:
    return checked.unit.key


@dataclass(frozen=True, slots=True)
class Judged:
    """The findings in a partition, and how many of its segments were noted by an earlier run."""

    key: TopicPartition
    findings: tuple[Finding, ...]
    errors: tuple[str, ...]
    skipped: int


def _judge(dirs: JobLogDirs, job: str, group: tuple[TopicPartition, Sequence[Checked]]) -> Judged:
    """Checks a partition against the rules across its segments. A segment that has changed since is
    checked again here."""
    key, checked = group[0], list(group[1])
    digests = {each.unit.facts: each.digest for each in checked if each.digest is not None}
    errors = [each.error for each in checked if each.error]
    findings: list[Finding] = []
    if not errors:
        verifier = _verifier(dirs, job)
        before = checked[0].unit.before if digests else None

        def find_checked(facts: SegmentFacts) -> DigestCheck | None:
            digest = digests.get(facts)
            return None if digest is None else DigestCheck(digest)

        try:
            found = dirs.engine().partition_dir(*key)
            findings = list(verifier.log(found, find_checked, before))
        except (UnknownTopic, UnknownPartition):  # deleted since it was listing
            pass
        except OSError as error:
            errors.append(f"{error.filename}: {error.strerror}")
    return Judged(key, tuple(findings), tuple(errors), sum(each.is_old for each in checked))


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
    units: Sequence[VerifyUnit],
    beside: Sequence[Finding],
    metadata: Mapping[TopicPartition, Sequence[Finding]],
    judged: Mapping[TopicPartition, Judged],
) -> Report:
    rows: list[Row] = []
    wrong: list[Row] = [finding.as_json() for finding in beside]
    segments: dict[TopicPartition, list[VerifyUnit]] = {}
    for unit in units:
        segments.setdefault(unit.key, []).append(unit)
    for found in partitions:
        key = _key(found)
        those = [unit for unit in segments[key] if unit.facts is not None]
        result = judged[key]
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
