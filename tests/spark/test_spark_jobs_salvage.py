"""Tests of salvage: it copies all intact batches unchanged and reports every loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkafs.spark import jobs
from kafkafs.spark.jobs.new_log_dir import NewLogDir
from kafkafs.storage.errors import LogDirError, OtherJob
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.log.check.sound import Lost, Sound, sound_batches
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.verifier import Verifier
from tests.building import BatchFields, build_batch
from tests.logs import TopicSettings, walk, write_log_dir, write_partition

Corpus = Callable[[str], Path]

SMALL = TopicSettings(segment_bytes=1500, segment_index_bytes=1200, index_interval_bytes=200)
LIMIT = 1 << 20


def batches(count: int, first: int = 0) -> Iterator[bytes]:
    for number in range(first, first + count):
        record = SimpleRecord(1_700_000_000_000 + number, b"k%d" % number, b"v" * 50)
        yield build_batch(
            [record],
            BatchFields(base_offset=number, producer_id=7, base_sequence=number, producer_epoch=0),
        )


def made(root: Path, count: int = 60) -> Path:
    """Writes a log directory with one partition of several segments."""
    write_partition(root / "t-0", batches(count), SMALL)
    write_log_dir(root, {("t", 0): count})
    return root


def logs(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


def sound(log: Path, next_base: int = -1) -> list[Sound | Lost]:
    directory = DirFd(str(log.parent.parent)).child(log.parent.name)
    return list(sound_batches(directory, int(log.stem), next_base, LIMIT))


def findings(root: Path) -> list[str]:
    verifier = Verifier(Engine(str(root)))
    found = list(verifier.directories())
    for partition in verifier.partitions():
        found += verifier.partition(partition)
    return list(map(str, found))


# -- intact batches, without Spark -----------------------------------------------------------------


def test_a_sound_segment_is_one_piece(tmp_path: Path) -> None:
    log = logs(made(tmp_path) / "t-0")[0]
    (part,) = sound(log)
    assert isinstance(part, Sound)
    assert bytes(part.data) == log.read_bytes()


def test_what_is_lost_has_its_place_and_its_offsets(tmp_path: Path) -> None:
    log = logs(made(tmp_path) / "t-0")[1]
    data = bytearray(log.read_bytes())
    headers = list(walk(bytes(data)))
    data[headers[2].position + 70] ^= 1
    data[headers[3].position + 70] ^= 1
    log.write_bytes(data)
    parts = sound(log, headers[-1].last_offset + 1)
    (lost,) = (part for part in parts if isinstance(part, Lost))
    assert (lost.first, lost.next) == (headers[2].base_offset, headers[4].base_offset)
    assert (lost.error.position, lost.resume) == (headers[2].position, headers[4].position)
    assert "crc" in lost.error.what


@pytest.mark.parametrize(("tail", "is_loss"), [(bytes(5000), False), (bytes(100) + b"x", True)])
def test_room_made_beforehand_is_no_loss(tmp_path: Path, tail: bytes, is_loss: bool) -> None:
    log = logs(made(tmp_path) / "t-0")[-1]
    with log.open("ab") as file:
        file.write(tail)
    assert any(isinstance(part, Lost) for part in sound(log)) == is_loss


# -- the job ---------------------------------------------------------------------------------------


@pytest.mark.spark
def test_of_a_sound_directory_nothing_is_lost(
    spark: SparkSession, corpus: Corpus, tmp_path: Path
) -> None:
    source = corpus("kafka43-clean")
    report = jobs.salvage(spark, str(source), str(tmp_path / "new"))
    assert report.exit_code == 0
    for log in source.glob("*-[0-9]/*.log"):
        copy = tmp_path / "new" / log.relative_to(source)
        assert copy.read_bytes() == log.read_bytes(), log
        for kind in (".index", ".timeindex", ".txnindex"):
            index = log.with_suffix(kind)
            if index.exists():
                assert copy.with_suffix(kind).read_bytes() == index.read_bytes(), index
    assert findings(tmp_path / "new") == []
    assert not list(tmp_path.glob("new.*"))


@pytest.mark.spark
def test_a_torn_directory(spark: SparkSession, corpus: Corpus, tmp_path: Path) -> None:
    source = corpus("kafka43-torn")
    report = jobs.salvage(spark, str(source), str(tmp_path / "new"))
    assert report.exit_code == 1
    lost = {(row["topic"], row["partition"]): row for row in report.wrong}
    assert sorted(lost) == [("crash-idem", 0), ("crash-plain", 0), ("crash-txn", 0)]
    # recovery would have cut off the intact batches after the damaged one
    txn = lost["crash-txn", 0]
    assert (txn["firstOffset"], txn["position"]) == (2873, 10401)
    old, new = (Engine(str(path)).log("crash-txn", 0).view() for path in (source, tmp_path / "new"))
    assert new.end_offset == old.end_offset
    (gap,) = findings(tmp_path / "new")
    assert "the offsets 2873 to 2880 before it are in no batch" in gap


@pytest.mark.spark
def test_started_again_it_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = made(tmp_path / "old"), tmp_path / "new"
    whole = sorted(path.name for path in (source / "t-0").iterdir())

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(NewLogDir, "finish", stop)
        with pytest.raises(KeyboardInterrupt):
            jobs.salvage(spark, str(source), str(output))
    assert not output.exists()
    unfinished = tmp_path / "new.unfinished" / "t-0"
    (unfinished / f".{0:020}.log.1.tmp").write_text("of an attempt that was killed")
    (note, *_) = (tmp_path / "new.notes").glob("unit-*")
    note.unlink()
    assert unfinished.is_dir()
    with pytest.raises(OtherJob, match="different topics"):
        jobs.salvage(spark, str(source), str(output), [("t", 0)])
    report = jobs.salvage(spark, str(source), str(output))
    assert report.skipped == report.units - 1
    assert (report.exit_code, report.rows[0]["batches"]) == (0, 60)
    assert sorted(path.name for path in (output / "t-0").iterdir()) == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]
    with pytest.raises(LogDirError, match="already exists"):
        jobs.salvage(spark, str(source), str(output))


def test_half_of_an_unfinished_directory_is_none(tmp_path: Path) -> None:
    target = NewLogDir(str(tmp_path / "new"))
    notes, _ = target.begin({"job": "salvage"})
    notes.put("unit", {})
    (tmp_path / "new.unfinished").rmdir()
    assert target.begin({"job": "salvage"})[0].get("unit") is None
    (tmp_path / "new.unfinished" / "stale-0").mkdir()
    notes.remove()
    target.begin({"job": "salvage"})
    assert not (tmp_path / "new.unfinished" / "stale-0").exists()
