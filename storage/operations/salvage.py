"""Copies every intact batch of damaged logs unchanged, and reports what is lost between them.

The units are segments. The sources are only read; the partitions of the copy are recovered
afterwards (see `new_log_dir`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..format.files.names import METADATA_TOPIC, TopicPartition
from ..io.durable import WritableFile
from ..log.check.partition_listing import PartitionListing
from ..log.check.sound import Lost, Sound, sound_batches
from ..log_dirs.engine import Engine
from .new_log_dir import Settled
from .request import PartitionsRequest


@dataclass(frozen=True, slots=True)
class Salvage(PartitionsRequest):
    """Copies the intact batches of the selected partitions. Changes nothing in their logs."""

    def units(self, engine: Engine) -> list[TopicPartition]:
        """Returns the partitions; without a selection also the quorum's own log, so that a node can
        start with the copy."""
        quorum = [key for key in engine.log_dirs.partitions() if key[0] == METADATA_TOPIC]
        return [*(() if self.selection else quorum), *PartitionsRequest.units(self, engine)]


@dataclass(frozen=True, slots=True)
class SalvageUnit:
    """A segment of the source; `next_base`: the base offset of the one after it, -1 for the
    last."""

    topic: str
    partition: int
    base_offset: int
    next_base: int
    size: int
    mtime_ns: int

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class SalvagedSegment:
    """What was copied of a segment, and what is `lost`, each place as JSON with file, position and
    offsets."""

    batches: int
    bytes: int
    lost: Sequence[Mapping[str, Any]]

    def as_json(self) -> dict[str, Any]:
        return {"batches": self.batches, "bytes": self.bytes, "lost": list(self.lost)}

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> SalvagedSegment:
        return cls(row["batches"], row["bytes"], row["lost"])


def segments_to_salvage(engine: Engine, key: TopicPartition) -> list[SalvageUnit]:
    """Returns the segments of a partition. Raises UnknownTopic or UnknownPartition."""
    listing = PartitionListing(engine.partition_dir(*key).directory)
    return [
        SalvageUnit(*key, f.base_offset, f.next_base, f.size, listing.mtimes[f.base_offset])
        for f in listing.segments(True)
    ]


def salvage_segment(engine: Engine, unit: SalvageUnit, log: WritableFile) -> SalvagedSegment:
    """Copies the intact batches of a segment to `log`."""
    source = engine.partition_dir(*unit.key).directory
    limit = engine.context.limits.max_batch_bytes
    position = batches = 0
    lost: list[dict[str, Any]] = []
    for part in sound_batches(source, unit.base_offset, unit.next_base, limit):
        if isinstance(part, Sound):
            log.write(position, part.data)
            position += len(part.data)
            batches += len(part.table)
        else:
            lost.append(_lost_row(unit, part))
    return SalvagedSegment(batches, position, lost)


def survey_segment(engine: Engine, unit: SalvageUnit) -> tuple[SalvagedSegment, int]:
    """Returns what would be copied of a segment, and the offset after it, -1 if that is nothing."""
    source = engine.partition_dir(*unit.key).directory
    limit = engine.context.limits.max_batch_bytes
    size = batches = 0
    end = -1
    lost: list[dict[str, Any]] = []
    for part in sound_batches(source, unit.base_offset, unit.next_base, limit):
        if isinstance(part, Sound):
            size += len(part.data)
            batches += len(part.table)
            end = part.table[len(part.table) - 1].last_offset + 1
        else:
            lost.append(_lost_row(unit, part))
    return SalvagedSegment(batches, size, lost), end


def is_useless(unit: SalvageUnit, result: SalvagedSegment) -> bool:
    """Whether the copy is empty because all was lost, and another segment follows."""
    return bool(result.lost) and not result.bytes and unit.next_base >= 0


def salvaged_partition(settled: Settled, segments: Sequence[SalvagedSegment]) -> dict[str, Any]:
    """Combines the results of a partition's segments to a row."""
    lost = [row for each in segments for row in each.lost]
    return {
        **settled.as_json(),
        "batches": sum(each.batches for each in segments),
        "lostPlaces": len(lost),
        "lostBytes": sum(row["bytes"] for row in lost),
    }


def _lost_row(unit: SalvageUnit, lost: Lost) -> dict[str, Any]:
    return {
        "topic": unit.topic,
        "partition": unit.partition,
        "file": lost.error.file,
        "position": lost.error.position,
        "bytes": lost.resume - lost.error.position,
        "firstOffset": lost.first,
        "nextOffset": lost.next if lost.next >= 0 else None,
        "what": lost.error.what,
    }
