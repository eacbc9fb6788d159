"""Tests of merging replicas: which batches come from which replica, decided by leader epochs."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from kafkafs.spark import jobs
from kafkafs.storage.errors import LogDirError, UnknownTopic
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.log.check.replicas import Merging, Replica, find_parting
from tests.building import BatchFields, build_batch
from tests.logs import TopicSettings, walk, write_log_dir, write_partition
from tests.spark.test_spark_jobs_salvage import findings

SMALL = TopicSettings(segment_bytes=1500, segment_index_bytes=1200, index_interval_bytes=200)
LIMIT = 1 << 20
# For calls that are rejected before they use Spark.
NO_SESSION = cast(SparkSession, None)


def batch(offset: int, epoch: int = 0, what: str = "", records: int = 2) -> bytes:
    made = [
        SimpleRecord(1_700_000_000_000 + offset + i, b"k", f"{what}{offset + i}".encode() * 10)
        for i in range(records)
    ]
    return build_batch(made, BatchFields(base_offset=offset, leader_epoch=epoch))


def run(first: int, end: int, epoch: int = 0, what: str = "") -> list[bytes]:
    return [batch(offset, epoch, what) for offset in range(first, end, 2)]


def replica(root: Path, batches: Iterable[bytes], name: str = "t-0", start: int = 0) -> Path:
    writer = write_partition(root / name, batches, SMALL, base_offset=start)
    write_log_dir(root, {(name[:-2], 0): writer.end_offset})
    return root


def damage(root: Path, *offsets: int, name: str = "t-0") -> None:
    """Corrupts the batches that contain these offsets."""
    for log in (root / name).glob("*.log"):
        data = bytearray(log.read_bytes())
        for header in walk(bytes(data)):
            if any(header.base_offset <= offset <= header.last_offset for offset in offsets):
                data[header.position + header.size - 1] ^= 1
        log.write_bytes(data)


def merged(
    one: Path, other: Path, is_compacted: bool = False, name: str = "t-0"
) -> tuple[list[bytes], Merging, Any]:
    """Returns the batches of the merged log, the merging, and its (parting, holes)."""
    first, second = (Replica(DirFd(str(root)).child(name), LIMIT) for root in (one, other))
    parting = find_parting(first, second, is_compacted)
    merging = Merging(first, second, parting, is_compacted)
    found, holes = [], []
    for taken in merging.batches():
        found.append(bytes(taken.batch.data))
        holes += [taken.hole] if taken.hole else []
    return found, merging, (parting, holes)


# -- without Spark ---------------------------------------------------------------------------------


def test_what_one_has_lost_comes_from_the_other(tmp_path: Path) -> None:
    whole = run(0, 100)
    one, other = replica(tmp_path / "a", whole), replica(tmp_path / "b", whole)
    damage(one, 4, 50, 51, 98)
    damage(other, 0, 20, 52)
    found, merging, (parting, holes) = merged(one, other)
    assert found == whole
    assert (merging.lost, merging.left_out, holes) == ([], 0, [])
    assert parting.is_conflict is False


def test_what_both_have_lost_is_a_hole(tmp_path: Path) -> None:
    whole = run(0, 60)
    one, other = replica(tmp_path / "a", whole), replica(tmp_path / "b", whole)
    damage(one, 10, 12, 58)
    damage(other, 12, 14, 58)
    found, merging, (_, holes) = merged(one, other)
    assert found == [each for each in whole if each not in (batch(12), batch(58))]
    assert holes == [(12, 14)]
    assert {lost.first for lost in merging.lost} == {58}


def test_different_starts_and_ends(tmp_path: Path) -> None:
    one = replica(tmp_path / "a", run(0, 40))
    other = replica(tmp_path / "b", run(20, 100), start=20)
    found, merging, _ = merged(one, other)
    assert found == run(0, 100)
    assert merging.left_out == 0


@pytest.mark.parametrize("is_swapped", [False, True])
def test_a_follower_that_was_not_told(tmp_path: Path, is_swapped: bool) -> None:
    """The old leader kept appending after another began epoch 3 at offset 40 (KIP-101)."""
    common = run(0, 40, epoch=1)
    old = replica(tmp_path / "old", [*common, *run(40, 90, epoch=1, what="lost")])
    new = replica(tmp_path / "new", [*common, *run(40, 60, epoch=3, what="kept")])
    damage(old, 10)
    damage(new, 44)
    replicas = (new, old) if is_swapped else (old, new)
    found, merging, (parting, holes) = merged(*replicas)
    kept = [each for each in run(40, 60, epoch=3, what="kept") if each != batch(44, 3, "kept")]
    assert found == [*common, *kept]
    assert parting.offset == 40
    assert merging.left_out == 25
    assert holes == [(44, 46)]


def test_epochs_that_the_leader_never_had(tmp_path: Path) -> None:
    """KIP-279: both were leaders in turn, each without knowing of the other's epoch."""
    common = run(0, 20, epoch=1)
    one = replica(tmp_path / "a", [*common, *run(20, 40, epoch=2, what="lost")])
    other = replica(tmp_path / "b", [*common, *run(20, 30, epoch=1), *run(30, 60, epoch=5)])
    found, merging, (parting, _) = merged(one, other)
    assert found == [*common, *run(20, 30, epoch=1), *run(30, 60, epoch=5)]
    assert (parting.offset, merging.left_out) == (20, 10)


def test_of_one_epoch_the_longer_log_is_believed(tmp_path: Path) -> None:
    one = replica(tmp_path / "a", [*run(0, 20), *run(20, 30, what="x")])
    other = replica(tmp_path / "b", run(0, 50))
    found, merging, (parting, _) = merged(one, other)
    assert found == run(0, 50)
    assert (parting.is_conflict, parting.offset, merging.left_out) == (True, 20, 5)


def test_cleaned_on_each_by_itself(tmp_path: Path) -> None:
    """For each batch, the replica with more records is used."""
    whole = run(0, 40)
    cleaned = list(whole)
    records = [SimpleRecord(1_700_000_000_000, b"k", b"v", offset=5)]
    cleaned[2] = build_batch(records, BatchFields(base_offset=4, last_offset=5))
    del cleaned[6]
    one, other = replica(tmp_path / "a", cleaned), replica(tmp_path / "b", whole)
    damage(other, 20)
    found, merging, (parting, holes) = merged(one, other, is_compacted=True)
    assert found == whole
    assert (parting.is_conflict, merging.left_out, holes) == (False, 0, [])


@pytest.mark.parametrize("seed", range(20))
def test_any_damage_that_does_not_meet_is_made_good(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    whole = [
        each
        for start in range(0, 200, 40)
        for each in run(start, start + 40, epoch=start // 40, what=str(seed))
    ]
    one, other = replica(tmp_path / "a", whole), replica(tmp_path / "b", whole)
    broken = chance.sample(range(100), chance.randrange(2, 60))
    half = len(broken) // 2
    damage(one, *(2 * number for number in broken[:half]))
    damage(other, *(2 * number for number in broken[half:]))
    for root in (one, other):  # epochs may be missing, too
        if chance.random() < 0.3:
            (root / "t-0" / "leader-epoch-checkpoint").unlink()
    found, merging, (_, holes) = merged(one, other)
    assert (found, merging.left_out, holes, merging.lost) == (whole, 0, [], [])


# -- the job ---------------------------------------------------------------------------------------


@pytest.mark.spark
def test_the_merged_directory_is_the_original(spark: SparkSession, tmp_path: Path) -> None:
    original = replica(tmp_path / "o", run(0, 100))
    for name in ("only-0", "other-0"):
        write_partition(original / name, run(0, 10), SMALL)
    ends = {("t", 0): 100, ("only", 0): 10, ("other", 0): 10}
    write_log_dir(original, ends)
    one, other = (tmp_path / "a", tmp_path / "b")
    for root, missing in ((one, "other-0"), (other, "only-0")):
        shutil.copytree(original, root)
        shutil.rmtree(root / missing)
    damage(one, 30, 31, 60)
    damage(other, 0, 99)
    settings = {"log.index.interval.bytes": "200", "log.index.size.max.bytes": "1200"}
    job = partial(jobs.merge, spark, str(one), str(other), configs=settings)
    with pytest.raises(UnknownTopic):
        job(str(tmp_path / "new"), [("nothing", None)])
    report = job(str(tmp_path / "new"))
    assert (report.exit_code, report.wrong) == (0, [])
    names = [(row["topic"], row["batches"], row["endOffset"]) for row in report.rows]
    assert names == [("only", 5, 10), ("other", 5, 10), ("t", 50, 100)]
    for path in original.glob("*/*"):
        copy = tmp_path / "new" / path.relative_to(original)
        assert copy.read_bytes() == path.read_bytes(), path
    assert findings(tmp_path / "new") == []
    with pytest.raises(LogDirError, match="already exists"):
        job(str(tmp_path / "new"))


@pytest.mark.spark
def test_what_was_left_out_is_told(spark: SparkSession, tmp_path: Path) -> None:
    one = replica(tmp_path / "a", [*run(0, 40, 1), *run(40, 60, 1, "lost")])
    other = replica(tmp_path / "b", [*run(0, 40, 1), *run(40, 50, 2)])
    report = jobs.merge(spark, str(one), str(other), str(tmp_path / "new"))
    (wrong,) = report.wrong
    assert report.exit_code == 1
    assert wrong["what"] == (
        "the first diverges from the second at offset 40: they have different batches; "
        "its latest is epoch 1, the second's epoch 2: 10 batches of the first are left out"
    )
    assert report.rows[0]["endOffset"] == 50
    assert findings(tmp_path / "new") == []


def test_directories_of_other_clusters_are_refused(tmp_path: Path) -> None:
    one, other = replica(tmp_path / "a", run(0, 4)), replica(tmp_path / "b", run(0, 4))
    meta = other / "meta.properties"
    meta.write_text(meta.read_text().replace("cluster.id=a", "cluster.id=b"))
    with pytest.raises(LogDirError, match="has cluster id b"):
        jobs.merge(NO_SESSION, str(one), str(other), str(tmp_path / "new"))
    assert not list(tmp_path.glob("new*"))
