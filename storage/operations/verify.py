"""Checks log directories against Kafka's rules, as a whole or in units that can be distributed.

The units are segments. Each is checked by itself; then, partition by partition, the rules across
segments are checked by means of the digests from the first round (see
`segment.check.verify_digest`). The findings are the same either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import SegmentGone, StorageError, UnknownPartition, UnknownTopic
from ..format.files.names import METADATA_TOPIC, TopicPartition
from ..format.records.decoder import Decoder
from ..log.check.partition_listing import PartitionListing
from ..log_dirs.engine import Engine
from ..segment.check.verify import SegmentCheck, SegmentFacts
from ..segment.check.verify_digest import DigestCheck, SegmentDigest
from ..segment.check.verify_index import Finding
from .request import SILENT, PartitionFailed, PartitionsRequest, ProgressListener
from .verifier import Verifier, fingerprint


@dataclass(frozen=True, slots=True)
class Verify(PartitionsRequest):
    """Checks the selected partitions, or all and the log directories' own files. Changes
    nothing."""

    def units(self, engine: Engine) -> list[TopicPartition]:
        """Returns the partitions, without a selection also the KRaft quorum's own log."""
        if not self.selection:
            return list(engine.log_dirs.partitions())
        return PartitionsRequest.units(self, engine)


@dataclass(frozen=True, slots=True)
class VerifySummary:
    """The last row: how many partitions were checked, and the number of findings."""

    partitions: int
    findings: int

    def as_json(self) -> dict[str, Any]:
        return {"partitions": self.partitions, "findings": self.findings}


def verify(
    engine: Engine, request: Verify, progress: ProgressListener = SILENT
) -> Iterator[Finding | VerifySummary | PartitionFailed]:
    """Yields each violated rule as soon as it is found, and a summary at the end."""
    verifier = Verifier(engine)
    # Always called, because it reads what partitions are checked against.
    findings = list(verifier.directories())
    if not request.selection:
        yield from findings
    count = 0 if request.selection else len(findings)
    units = request.units(engine)
    for number, key in enumerate(units):
        progress.check()
        progress.report("verifying partitions", number, len(units))
        try:
            for found in engine.copies_of(*key):
                for finding in verifier.partition(found):
                    count += 1
                    yield finding
        except (UnknownTopic, UnknownPartition):
            continue  # it was deleted in the meantime
        except (StorageError, OSError) as error:
            yield PartitionFailed.of(error)
    yield VerifySummary(len(units), count)


# -- in units --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SegmentUnit:
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
        """Bytes of the `.log`."""
        return self.facts.size if self.facts is not None else 0

    @property
    def name(self) -> str:
        """A name that differs if the segment has changed."""
        assert self.facts is not None
        files = " ".join(sorted(self.facts.files))
        facts = (self.facts.base_offset, self.size, self.facts.next_base, self.facts.is_closed)
        return f"{self.topic}-{self.partition} {facts} {files} {self.stops} {self.mtime_ns}"


@dataclass(frozen=True, slots=True)
class SegmentResult:
    """The result of a unit. `digest`: None without a segment, or if it was deleted meanwhile.
    `error`: why it could not be read, else empty. `is_settled`: nothing changed meanwhile, so that
    the findings apply to a state of the segment. `is_old`: the result is that of an earlier run."""

    unit: SegmentUnit
    digest: SegmentDigest | None = None
    error: str = ""
    is_settled: bool = True
    is_old: bool = False


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """The findings in a partition, and why segments of it could not be read."""

    findings: tuple[Finding, ...]
    errors: tuple[str, ...]


def segments_of(engine: Engine, key: TopicPartition) -> list[SegmentUnit]:
    """Returns the segments of a partition as they are now. Raises UnknownTopic or
    UnknownPartition."""
    found = engine.partition_dir(*key)
    try:
        # The quorum's log is recovered at every start, even after a clean shutdown.
        is_closed = found.log_dir.is_clean and found.topic != METADATA_TOPIC
        before = fingerprint(found.directory)
        listing = PartitionListing(found.directory)
        stops = listing.stops(found.log_dir.log_start_offsets.get(key, 0))
        units = [
            SegmentUnit(*key, facts, stops, listing.mtimes[facts.base_offset], before)
            for facts in listing.segments(is_closed)
        ]
    except SegmentGone:
        units = []
    return units or [SegmentUnit(*key)]


def check_segment(engine: Engine, unit: SegmentUnit, decoder: Decoder) -> SegmentResult:
    """Checks a segment by itself."""
    if unit.facts is None:
        return SegmentResult(unit)
    limit = engine.context.limits.max_batch_bytes
    try:
        directory = engine.partition_dir(*unit.key).directory
        check = SegmentCheck(directory, unit.facts, decoder, limit)
        digest = SegmentDigest.of(check, unit.facts, unit.stops)
        is_settled = not digest.findings or fingerprint(directory) == unit.before
    except (SegmentGone, UnknownPartition, UnknownTopic):
        return SegmentResult(unit)
    except OSError as error:
        return SegmentResult(unit, error=f"{error.filename}: {error.strerror}")
    return SegmentResult(unit, digest, is_settled=is_settled)


def check_partition(
    engine: Engine, verifier: Verifier, checked: Sequence[SegmentResult]
) -> PartitionResult:
    """Checks a partition, all of whose segments are `checked`, against the rules across its
    segments. A segment that has changed since is checked again here. `verifier` has read the small
    files (see `Verifier.directories`)."""
    digests = {each.unit.facts: each.digest for each in checked if each.digest is not None}
    errors = [each.error for each in checked if each.error]
    findings: list[Finding] = []

    def find_checked(facts: SegmentFacts) -> DigestCheck | None:
        digest = digests.get(facts)
        return None if digest is None else DigestCheck(digest)

    if not errors:
        before = checked[0].unit.before if digests else None
        try:
            found = engine.partition_dir(*checked[0].unit.key)
            findings = list(verifier.log(found, find_checked, before))
        except (UnknownTopic, UnknownPartition):  # deleted since it was listed
            pass
        except OSError as error:
            errors.append(f"{error.filename}: {error.strerror}")
    return PartitionResult(tuple(findings), tuple(errors))
