"""Data directories of Redpanda, read as log directories.

No files of a real broker were available. These are written by `tests/redpanda.py`, from the
published format, of batches that brokers of Kafka have written, or that are made up.
"""

from __future__ import annotations

import os
import struct
import tarfile
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.config.kafka import reader_config
from kafkafs.storage.errors import CorruptError, LogDirError
from kafkafs.storage.format.files.checkpoints import parse_leader_epochs, parse_offsets
from kafkafs.storage.format.records.columns import Damage
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.redpanda.data_directory import RedpandaDirectory
from tests import answers
from tests.batches import simple_records, v2_batches
from tests.building import BatchFields, build_batch, build_end_txn_marker
from tests.reading import COMMITTED, UNCOMMITTED, read, scan
from tests.redpanda import (
    ARCHIVAL_METADATA,
    PLACEHOLDER,
    RAFT_CONFIGURATION,
    TX_FENCE,
    UNSEEN,
    RedpandaLog,
    convert,
    raft_snapshot,
)
from tests.storage.test_corpora import as_expected, records

CORPUS = "kafka43-clean"
PARTITIONS = answers.partitions(CORPUS)
WITH_RECORDS = [
    (*key, level)
    for key in answers.partitions_with_records(CORPUS)
    for level in (COMMITTED, UNCOMMITTED)
]


def batch(count: int, timestamp: int = 1_700_000_000_000, **fields: object) -> bytes:
    found = [SimpleRecord(timestamp + n, b"k%d" % n, b"value %d" % n) for n in range(count)]
    return build_batch(found, BatchFields(**fields))  # type: ignore[arg-type]


def partition_of(directory: Path, number: int = 0, revision: int = 12, topic: str = "t") -> Path:
    return directory / "kafka" / topic / f"{number}_{revision}"


def logs_of(directory: Path, topic: str = "t") -> bytes:
    """The translation of all segments of a partition, and checks that their names are right."""
    found = RedpandaDirectory(DirFd(str(directory))).child(f"{topic}-0")
    names = sorted(name for name in found.files()[0] if name.endswith(".log"))
    parts = [found.open(name).read(0, 1 << 30) for name in names]
    for name, part in zip(names, parts, strict=True):
        if part:
            assert struct.unpack_from(">q", part)[0] >= int(name.removesuffix(".log"))
    return b"".join(parts)


# -- a real broker's batches ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def converted(corpus: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with the batches of a corpus."""
    source, target = corpus(CORPUS), tmp_path_factory.mktemp("redpanda") / "data"
    starts = parse_offsets((source / "log-start-offset-checkpoint").read_bytes())
    convert(source, target, starts)
    return target


@pytest.fixture(scope="module")
def view(converted: Path) -> Callable[[str, int], View]:
    engine = Engine(str(converted))

    def opened(topic: str, number: int) -> View:
        if topic not in engine.topics():
            pytest.skip("it has batches of older formats")
        return engine.log(topic, number).view()

    return cache(opened)


@pytest.mark.parametrize(("topic", "number", "isolation"), WITH_RECORDS)
def test_the_records_are_those_that_a_consumer_was_given(
    view: Callable[[str, int], View], topic: str, number: int, isolation: object
) -> None:
    found = [as_expected(each) for each in records(view(topic, number), isolation)]  # type: ignore[arg-type]
    assert found == list(answers.records(CORPUS, topic, number, isolation.value))  # type: ignore[attr-defined]


@pytest.mark.parametrize(("topic", "number"), PARTITIONS)
def test_the_offsets_are_those_that_a_broker_named(
    view: Callable[[str, int], View], topic: str, number: int
) -> None:
    found, named = view(topic, number), answers.offsets(CORPUS)[topic, number]
    expected = (named.beginning, named.end, named.last_stable)
    assert (found.start_offset, found.end_offset, found.last_stable_offset) == expected
