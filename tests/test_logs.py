"""`tests.logs` rewrites partitions of real brokers: every file is identical."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkafs.storage.format.layout import Codec, ControlType
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.building import BatchFields, build_batch, build_end_txn_marker
from tests.logs import (
    PartitionWriter,
    TopicSettings,
    parse_header,
    rebuild_indexes,
    walk,
    write_log_dir,
    write_partition,
)
from tests.producers import Producers

# Changed after the append: segments deleted or cleaned, or the log start offset raised.
NOT_AS_APPENDED = ("__cluster_metadata", "emptied", "gone")


def settings_of(expected: Path, topic: str) -> TopicSettings:
    """Returns the configs under which the broker wrote `topic`."""
    topics = json.loads((expected / "partitions.json").read_text())
    configs = {
        name: int(config["value"])
        for name, config in topics.get(topic, {"configs": {}})["configs"].items()
        if config["value"].isdecimal()
    }
    plain = TopicSettings()
    segment_bytes = configs.get("segment.bytes", plain.segment_bytes)
    return TopicSettings(
        configs.get("internal.segment.bytes", segment_bytes),
        configs.get("segment.ms", plain.segment_ms),
        configs.get("segment.index.bytes", plain.segment_index_bytes),
        configs.get("index.interval.bytes", plain.index_interval_bytes),
    )


def as_appended(log_dir: Path) -> list[Path]:
    """Returns the partition directories that hold exactly what was appended."""
    return [
        path
        for path in sorted(log_dir.iterdir())
        if path.is_dir() and path.name.split("-")[0] not in NOT_AS_APPENDED
        and ".deleted" not in "".join(file.name for file in path.iterdir())
    ]  # fmt: skip


def contents(directory: Path) -> dict[str, bytes]:
    """Returns every file but the topic ID."""
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if path.name != "partition.metadata"
    }


@pytest.mark.parametrize(
    ("name", "count"),
    [("kafka43-clean", 25), ("kafka39", 14)],
)
def test_a_brokers_partitions_are_written_alike(
    name: str,
    count: int,
    corpus: Callable[[str], Path],
    expected: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    partitions = as_appended(corpus(name))
    assert len(partitions) == count
    for theirs in partitions:
        logs = [log.read_bytes() for log in sorted(theirs.glob("*.log"))]
        settings = settings_of(expected(name), theirs.name.rpartition("-")[0])
        ours = tmp_path / theirs.name
        write_partition(ours, [header.data for log in logs for header in walk(log)], settings)
        assert contents(ours) == contents(theirs), theirs.name


@pytest.mark.parametrize("name", ["kafka43-clean", "kafka39", "compact-after"])
def test_the_cleaners_indexes_are_rebuilt_alike(
    name: str, corpus: Callable[[str], Path], expected: Callable[[str], Path]
) -> None:
    rebuilt = 0
    for log in sorted(corpus(name).glob("c*mp*/*.log")):
        settings = settings_of(expected(name), log.parent.name.rpartition("-")[0])
        indexes = rebuild_indexes(log.read_bytes(), int(log.stem), settings.index_interval_bytes)
        assert indexes.offset_bytes() == log.with_suffix(".index").read_bytes(), log
        assert indexes.time_bytes() == log.with_suffix(".timeindex").read_bytes(), log
        rebuilt += 1
    assert rebuilt > 5


def test_index_entries_come_after_more_than_the_interval(tmp_path: Path) -> None:
    batches = [build_batch([SimpleRecord(1000 + n, b"k")], BatchFields(n)) for n in range(4)]
    size = len(batches[0])
    write_partition(tmp_path, batches, TopicSettings(index_interval_bytes=size))
    assert (tmp_path / f"{0:020}.index").read_bytes().hex() == f"00000002{2 * size:08x}"
    times = (tmp_path / f"{0:020}.timeindex").read_bytes().hex()
    assert times == f"{1002:016x}00000002" + f"{1003:016x}00000003"


def test_a_crash_leaves_the_active_indexes_preallocated(tmp_path: Path) -> None:
    batches = [build_batch([SimpleRecord(1000 + n, b"k")], BatchFields(n)) for n in range(4)]
    settings = TopicSettings(segment_bytes=2 * len(batches[0]), segment_index_bytes=1000)
    writer = write_partition(tmp_path, batches, settings, clean=False)
    assert (writer.bases, writer.end_offset) == ([0, 2], 4)
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == {
        "00000000000000000000.log": 2 * len(batches[0]),
        "00000000000000000000.index": 0,
        "00000000000000000000.timeindex": 12,
        "00000000000000000002.log": 2 * len(batches[0]),
        "00000000000000000002.index": 1000,
        "00000000000000000002.timeindex": 996,
        "00000000000000000002.snapshot": 10,
        "leader-epoch-checkpoint": 8,
        "partition.metadata": 43,
    }


def test_full_indexes_end_a_segment(tmp_path: Path) -> None:
    settings = TopicSettings(index_interval_bytes=0, segment_index_bytes=36)
    writer = PartitionWriter(tmp_path, settings)
    for offset in range(8):
        writer.append(build_batch([SimpleRecord(offset)], BatchFields(offset)))
    # The first batch has no entry; the last slot of the time index is reserved for the roll.
    assert writer.bases == [0, 3, 6]


def test_leader_epochs_begin_where_their_first_batch_does(tmp_path: Path) -> None:
    batches = [
        build_batch([SimpleRecord(1)], BatchFields(offset, leader_epoch=epoch))
        for offset, epoch in ((0, 0), (1, 0), (2, 5), (9, 5), (10, 7))
    ]
    write_partition(tmp_path, batches)
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n5 2\n7 10\n"


def test_files_of_the_log_dir_are_those_a_broker_leaves(
    corpus: Callable[[str], Path], tmp_path: Path
) -> None:
    theirs = corpus("kafka43-clean")
    write_log_dir(tmp_path, {("orders", 0): 6674}, start_offsets={("trimmed", 0): 1433})
    ours = {path.name for path in tmp_path.iterdir()}
    assert ours == {path.name for path in theirs.iterdir() if path.is_file()} - {
        "bootstrap.checkpoint"
    }
    checkpoint = (tmp_path / "log-start-offset-checkpoint").read_text()
    assert checkpoint == "0\n1\ntrimmed 0 1433\n"
    assert keys(tmp_path / "meta.properties") == keys(theirs / "meta.properties")


def keys(properties: Path) -> list[str]:
    return [line.split("=")[0] for line in properties.read_text().splitlines() if "=" in line]


def test_a_compressed_batch_reads_back_as_one_header() -> None:
    batch = build_batch(
        [SimpleRecord(1000, b"k", bytes(500))] * 3,
        BatchFields(10, codec=Codec.GZIP, leader_epoch=4, producer_id=7, producer_epoch=1),
    )
    header = parse_header(batch)
    assert (header.base_offset, header.last_offset, header.size) == (10, 12, len(batch))
    assert (header.leader_epoch, header.producer_id, header.producer_epoch) == (4, 7, 1)


def producer_batch(offset: int, count: int, sequence: int, producer_id: int = 1000) -> bytes:
    fields = BatchFields(
        offset,
        producer_id=producer_id,
        producer_epoch=2,
        base_sequence=sequence,
        is_transactional=True,
    )
    return build_batch([SimpleRecord(1700000000000, b"k")] * count, fields)


def marker(offset: int, kind: ControlType) -> bytes:
    fields = BatchFields(offset, producer_id=1000, producer_epoch=2)
    return build_end_txn_marker(kind, 1700000000000, 5, fields)


def test_a_snapshot_is_the_one_kafka_wrote() -> None:
    producers = Producers()
    for batch in (
        marker(43, ControlType.COMMIT),
        producer_batch(44, 2, 3),
        producer_batch(46, 5, 5),
    ):
        assert producers.append(parse_header(batch)) == []
    assert producers.snapshot().hex() == (
        "0001fdf77d280000000100000000000003e80002000000090000000000000032000000040000018bcfe56800"
        "00000005000000000000002c"
    )


def test_an_aborted_transaction_is_the_index_entry_kafka_wrote() -> None:
    producers = Producers()
    assert producers.append(parse_header(producer_batch(110, 5, 0))) == []
    [entry] = producers.append(parse_header(marker(115, ControlType.ABORT)))
    assert entry.hex() == "000000000000000003e8000000000000006e00000000000000730000000000000074"


def test_producers_come_in_the_order_of_javas_hash_map() -> None:
    producers = Producers()
    for producer_id in (17, 1, 33, 16, 5, 1000, 4000000001, 2):
        producers.append(parse_header(producer_batch(0, 1, 0, producer_id)))
    snapshot = producers.snapshot()
    ids = [int.from_bytes(snapshot[at : at + 8]) for at in range(10, len(snapshot), 46)]
    assert ids == [16, 17, 1, 33, 2, 5, 1000, 4000000001]
