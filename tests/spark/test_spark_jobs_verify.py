"""Tests that verification by tasks reports exactly the findings of `kafkafs verify`."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkafs.spark import jobs
from kafkafs.storage.errors import OtherJob
from kafkafs.storage.format.layout import ControlType
from kafkafs.storage.format.records.decoder import Decoder
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.log.check.partition_listing import PartitionListing
from kafkafs.storage.log.check.verify import LogCheck
from kafkafs.storage.log.read.context import ReadLimits
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.verifier import Verifier
from kafkafs.storage.segment.check.verify import SegmentCheck, SegmentFacts
from kafkafs.storage.segment.check.verify_digest import DigestCheck, SegmentDigest
from kafkafs.storage.segment.check.verify_index import Finding
from tests.building import BatchFields, build_batch, build_end_txn_marker
from tests.index_damage import damage_indexes
from tests.logs import TopicSettings, write_partition

Corpus = Callable[[str], Path]

TIME = 1_700_000_000_000
SMALL = TopicSettings(segment_bytes=4000, segment_index_bytes=1200, index_interval_bytes=200)
LIMITS = ReadLimits()


def single(*log_dirs: Path) -> list[Finding]:
    verifier = Verifier(Engine([str(path) for path in log_dirs]))
    found = list(verifier.directories())
    for partition in verifier.partitions():
        found += verifier.partition(partition)
    return found


def batches(chance: random.Random, count: int) -> Iterator[bytes]:
    """Yields plain, idempotent and transactional batches, with gaps, epochs and markers."""
    offset = epoch = 0
    sequences = dict.fromkeys(range(4), 0)
    is_open = dict.fromkeys(range(4), False)
    for _ in range(count):
        offset += chance.choice([0] * 60 + [3])
        epoch += chance.random() < 0.02
        producer = chance.choice([-1, -1, -1, 0, 1, 2, 3])
        records = [
            SimpleRecord(TIME + offset + i, b"k", b"v" * 9) for i in range(chance.randrange(1, 4))
        ]
        fields = BatchFields(base_offset=offset, leader_epoch=epoch)
        if producer > 1 and is_open[producer] and chance.random() < 0.3:
            kind = chance.choice([ControlType.COMMIT, ControlType.ABORT])
            marker = BatchFields(
                base_offset=offset, leader_epoch=epoch, producer_id=producer, producer_epoch=0
            )
            yield build_end_txn_marker(kind, TIME, 0, marker)
            is_open[producer] = False
            offset += 1
            continue
        if producer >= 0:
            fields = BatchFields(
                base_offset=offset,
                leader_epoch=epoch,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequences[producer],
                is_transactional=producer > 1,
            )
            is_open[producer] = producer > 1
            sequences[producer] += len(records)
        yield build_batch(records, fields)
        offset += len(records)


def by_digests(partition: Path, may_have_gaps: bool) -> list[Finding]:
    """Verifies as the job does: segments separately, with digests as JSON, then the log."""
    directory = DirFd(str(partition.parent)).child(partition.name)
    digests: dict[SegmentFacts, SegmentDigest] = {}
    listing = PartitionListing(directory)
    for facts in listing.segments(True):
        check = SegmentCheck(directory, facts, Decoder(LIMITS.max_batch_bytes), 1 << 20)
        digest = SegmentDigest.of(check, facts, listing.stops(0))
        digests[facts] = SegmentDigest.from_json(json.loads(json.dumps(digest.as_json())))

    def find(facts: SegmentFacts) -> DigestCheck:
        return DigestCheck(digests[facts])

    return list(LogCheck(directory, 0, True, may_have_gaps, LIMITS, find).findings())


@pytest.mark.parametrize("seed", range(30))
def test_digests_stand_for_segments(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    partition = tmp_path / "t-0"
    write_partition(partition, batches(chance, 400), SMALL)
    files = sorted(path for path in partition.iterdir() if path.suffix in (".log", ".snapshot"))
    for path in chance.sample(files, chance.randrange(4)):
        data = bytearray(path.read_bytes())
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
    if chance.random() < 0.5:
        damage_indexes(partition, [(chance.randrange(8), "flip", chance.randrange(1000))])
    if chance.random() < 0.3:
        (partition / "leader-epoch-checkpoint").write_text("0\n1\n1 7\n")
    directory = DirFd(str(tmp_path)).child("t-0")
    expected = list(LogCheck(directory, 0, True, seed % 2 == 0, LIMITS).findings())
    assert by_digests(partition, seed % 2 == 0) == expected
    assert expected or seed % 3


def test_a_digest_is_small(tmp_path: Path) -> None:
    """Batches without findings leave only a few rows."""
    plain = [
        build_batch(
            [SimpleRecord(TIME, b"k", b"v")],
            BatchFields(base_offset=at, producer_id=1, producer_epoch=0, base_sequence=at),
        )
        for at in range(5000)
    ]
    write_partition(tmp_path / "t-0", plain)
    directory = DirFd(str(tmp_path)).child("t-0")
    (facts,) = PartitionListing(directory).segments(True)
    check = SegmentCheck(directory, facts, Decoder(1 << 20), 1 << 20)
    digest = SegmentDigest.of(check, facts, ())
    assert sum(len(rows) for _, rows in digest.tables) < 8 * len(digest.tables)


# -- the job ---------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize("name", ["kafka43-torn", "kafka43-crash", "kafka28", "kafka43-clean"])
def test_the_findings_of_one_process(spark: SparkSession, corpus: Corpus, name: str) -> None:
    expected = [finding.as_json() for finding in single(corpus(name))]
    report = jobs.verify(spark, str(corpus(name)))
    assert list(report.wrong) == expected
    assert report.exit_code == (1 if expected else 0)
    assert bool(expected) == (name == "kafka43-torn")


@pytest.mark.spark
def test_damage_everywhere(spark: SparkSession, writable_corpus: Corpus, tmp_path: Path) -> None:
    root = writable_corpus("kafka43-clean")
    (root / "orders-0" / "partition.metadata").write_text(
        (root / "one-0" / "partition.metadata").read_text()
    )
    (root / "no partition").mkdir()
    (root / "recovery-point-offset-checkpoint").write_text("0\n1\norders 1 99999999\n")
    for log in root.glob("*-[0-9]/*.log"):
        data = bytearray(log.read_bytes())
        if len(data) > 100:
            data[len(data) // 2] ^= 8
            log.write_bytes(data)
    expected = [finding.as_json() for finding in single(root)]
    state = str(tmp_path / "state")
    report = jobs.verify(spark, str(root), state=state)
    assert list(report.wrong) == expected
    assert len(expected) > 20
    again = jobs.verify(spark, str(root), state=state)
    assert list(again.wrong) == expected
    assert (report.skipped, again.skipped) == (0, sum(row["segments"] for row in again.rows))
    chosen = jobs.verify(spark, str(root), [("orders", 1)])
    in_orders = [each for each in expected if "/orders-1/0" in str(each["file"])]
    assert [each for each in chosen.wrong if "/orders-1/0" in each["file"]] == in_orders != []
    (tmp_path / "other").symlink_to(root)
    with pytest.raises(OtherJob, match="different log_dirs"):
        jobs.verify(spark, str(tmp_path / "other"), state=state)
