"""Stages records for tests, as an executor does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkafs.storage.format.files.names import TopicPartition
from kafkafs.storage.format.records.encoder import BatchPlan
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.ingest import joining, two_phase
from kafkafs.storage.ingest.commit_file import StagedPart
from kafkafs.storage.ingest.staging import StagedWriter, StagingPlace, finish_all, staging_path
from kafkafs.storage.log_dirs.engine import Engine

NOW_MS = 1_700_000_000_000
#: For `large_from`: every segment, and none.
ALL, NONE = 1, 1 << 40
#: For `large_from`: small writes are joined to the active segment, as by default.
JOINED = None


@contextmanager
def large_from(size: int | None) -> Iterator[None]:
    """Makes ingest take staged segments of at least `size` bytes into a log as they are, and copy
    others; no write is joined to the active segment unless `size` is JOINED."""
    with pytest.MonkeyPatch.context() as patch:
        if size is not None:
            patch.setattr(two_phase, "_LARGE", size)
            patch.setattr(joining, "_MOST", 0)
        yield


def stage(
    log_dir: Path,
    job: str,
    values: Mapping[TopicPartition, Iterable[Sequence[str]]],
    attempt: str = "0-0",
) -> list[StagedPart]:
    """Stages, for each partition, appends of several values each."""
    place = StagingPlace(staging_path(str(log_dir)))
    directory = place.attempt(job, attempt)
    engine = Engine(str(log_dir))
    writers = []
    for (topic, partition), appends in values.items():
        config = engine.topic_config(topic).config
        writer = StagedWriter(directory, topic, partition, config)
        writers.append(writer)
        for some in appends:
            records = [SimpleRecord(NOW_MS, b"k", value.encode()) for value in some]
            writer.append_records(RecordColumns.from_records(records), BatchPlan(), NOW_MS)
    return finish_all(writers)
