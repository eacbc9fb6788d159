"""A partition of a terabyte that takes little space: its files have holes between the batches that
are looked up.

Every segment has 1 GiB, all its index entries, its first and last batches, and three consecutive
batches around each chosen record; the rest of its `.log` is a hole. A lookup reads what it would in
a full log, because an index entry leads it to one of these batches and the next.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np

from kafkafs.storage.format.layout import Codec
from tests.bench.data import BATCH_RECORDS, TOPIC, build, kept, made, placed, time_of
from tests.logs import write_checkpoint, write_log_dir
from tests.producers import Producers

SEGMENT_BYTES = 1 << 30
TARGETS_FILE = "targets.json"
_RECORDS = BATCH_RECORDS[Codec.NONE]
_FIRST_OR_LAST = 2
# For the partitions whose compaction is planned.
_PLANNED_RECORD_BYTES = 100
_PLANNED_ENTRIES = 64


def sparse_log(segments: int, targets: int) -> Path:
    """Returns a log directory with a partition of `segments` GiB, in which `targets` random offsets
    can be looked up; `targets_of` returns them."""

    def make(directory: Path) -> None:
        partition = directory / f"{TOPIC}-0"
        partition.mkdir()
        chosen = _Writer(partition).write(segments, targets)
        end = _Writer.BATCHES * _RECORDS * segments
        _write_small_files(partition, end)
        write_log_dir(directory, {(TOPIC, 0): end})
        (directory / TARGETS_FILE).write_text(json.dumps(chosen))

    return kept(f"sparse-{segments}-{targets}", make)


def sparse_partitions(partitions: int, segments: int) -> Path:
    """Returns a log directory with `partitions` partitions of `segments` segments of 1 GiB each,
    which contain only what planning reads: some index entries, and the end of the log."""

    def make(directory: Path) -> None:
        records = SEGMENT_BYTES // _PLANNED_RECORD_BYTES
        entries = np.arange(1, _PLANNED_ENTRIES, dtype=">i4")
        index = np.empty((len(entries), 2), dtype=">i4")
        index[:, 0] = entries * (records // _PLANNED_ENTRIES) - 1
        index[:, 1] = entries * (SEGMENT_BYTES // _PLANNED_ENTRIES)
        end = segments * records
        last = placed(build(0, 1, Codec.NONE), end)
        for number in range(partitions):
            partition = directory / f"{TOPIC}-{number}"
            partition.mkdir()
            for base in range(0, end, records):
                stem = partition / f"{base:020}"
                with stem.with_suffix(".log").open("wb") as log:
                    log.truncate(SEGMENT_BYTES)
                stem.with_suffix(".index").write_bytes(index.tobytes())
                stem.with_suffix(".timeindex").write_bytes(b"")
            (partition / f"{end:020}.log").write_bytes(last)
            _write_small_files(partition, end + 1)
        write_log_dir(directory, {(TOPIC, number): end + 1 for number in range(partitions)})

    return made(f"sparse-{partitions}x{segments}", make)


def targets_of(log_dir: Path, records: int, count: int) -> list[int]:
    """Returns offsets to look up: those of a sparse log, else `count` random ones of `records`."""
    path = log_dir / TARGETS_FILE
    if path.exists():
        offsets: list[int] = json.loads(path.read_text())
        return offsets
    source = random.Random(9)
    return [source.randrange(records) for _ in range(count)]


def _write_small_files(partition: Path, end_offset: int) -> None:
    (partition / f"{end_offset:020}.snapshot").write_bytes(Producers().snapshot())
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: AQEBAQEBAQEBAQEBAQEBAQ")
    write_checkpoint(partition / "leader-epoch-checkpoint", ["0 0"])


class _Writer:
    """A writer of a partition whose segments all have the same shape."""

    BATCH = build(0, _RECORDS, Codec.NONE)
    BATCHES = SEGMENT_BYTES // len(BATCH)

    def __init__(self, partition: Path) -> None:
        self._partition = partition

    def write(self, segments: int, targets: int) -> list[int]:
        """Writes all files of the segments. Returns the offsets that can be looked up."""
        source = random.Random(9)
        chosen: list[list[int]] = [[] for _ in range(segments)]
        offsets: list[int] = []
        for _ in range(targets):
            segment, batch = source.randrange(segments), source.randrange(1, self.BATCHES - 1)
            chosen[segment].append(batch)
            first = (segment * self.BATCHES + batch) * _RECORDS
            # in the middle, because two batches may share a millisecond
            offsets.append(first + source.randrange(_RECORDS // 4, _RECORDS // 2))
        for segment, batches in enumerate(chosen):
            self._segment(segment, batches)
        return offsets

    def _segment(self, number: int, chosen: list[int]) -> None:
        base = number * self.BATCHES * _RECORDS
        stem = self._partition / f"{base:020}"
        present = {*range(_FIRST_OR_LAST), *range(self.BATCHES - _FIRST_OR_LAST, self.BATCHES)}
        for batch in chosen:
            present |= {batch - 1, batch, batch + 1}
        with stem.with_suffix(".log").open("wb") as log:
            log.truncate(self.BATCHES * len(self.BATCH))
            for batch in sorted(present):
                log.seek(batch * len(self.BATCH))
                log.write(placed(self.BATCH, base + batch * _RECORDS))
        self._indexes(stem, base)

    def _indexes(self, stem: Path, base: int) -> None:
        """Writes an entry for every batch but the first, as a batch is longer than the interval."""
        batches = np.arange(1, self.BATCHES)
        last_offsets = (batches + 1) * _RECORDS - 1
        offsets = np.empty((len(batches), 2), dtype=">i4")
        offsets[:, 0], offsets[:, 1] = last_offsets, batches * len(self.BATCH)
        stem.with_suffix(".index").write_bytes(offsets.tobytes())
        times = np.empty(len(batches), dtype=[("time", ">i8"), ("offset", ">i4")])
        times["time"] = time_of(base + batches * _RECORDS) + time_of(_RECORDS - 1) - time_of(0)
        times["offset"] = last_offsets
        stem.with_suffix(".timeindex").write_bytes(times.tobytes())
