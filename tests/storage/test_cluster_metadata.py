"""Reads the topics from a broker's own directory and compares them with the broker's answers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkafs.storage.format.messages.metadata import ResourceType
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.metadata.cluster_metadata import ClusterMetadata
from kafkafs.storage.metadata.image import MetadataImage
from tests import answers
from tests.building import BatchFields, build_batch
from tests.logs import walk

# The last batch of a snapshot.
FOOTER = build_batch(
    [SimpleRecord(key=b"\0\0\0\4", value=b"\0\0\0")],
    BatchFields(base_offset=1 << 40, is_control=True),
)
KRAFT = sorted(set(answers.CORPORA) - {"kafka28", "kafka43-two-dirs"})
LOG = "00000000000000000000.log"


def metadata_of(paths: str) -> ClusterMetadata:
    engine = Engine(paths)
    return ClusterMetadata(engine.log("__cluster_metadata", 0), engine.context)


@pytest.mark.parametrize("name", KRAFT)
def test_ids_and_settings_are_those_that_the_broker_returned(
    name: str, corpus: Callable[[str], Path]
) -> None:
    metadata = metadata_of(str(corpus(name)))
    image = metadata.image()
    assert metadata.problems == []
    assert {name: topic.topic_id for name, topic in image.topics.items()} == answers.topic_ids(name)
    configs = {name: dict(topic.configs) for name, topic in image.topics.items()}
    assert configs == answers.topic_configs(name)
    assert "gone" not in image.topics
    assert metadata.image() is image


def test_partitions_of_two_directories(corpus: Callable[[str], Path]) -> None:
    root = corpus("kafka43-two-dirs")
    image = metadata_of(f"{root}/dir1,{root}/dir2").image()
    here = Engine(f"{root}/dir1,{root}/dir2").topics()
    for name, topic in image.topics.items():
        assert sorted(topic.partitions) == here[name]
    assert image.configs[ResourceType.BROKER] == {"": {"min.insync.replicas": "1"}}


@pytest.fixture
def copy(tmp_path: Path, corpus: Callable[[str], Path]) -> Path:
    """Makes a log directory with only the metadata log of kafka43-clean."""
    source = corpus("kafka43-clean")
    shutil.copytree(source / "__cluster_metadata-0", tmp_path / "__cluster_metadata-0")
    shutil.copy(source / "meta.properties", tmp_path)
    return tmp_path


@pytest.fixture
def whole(corpus: Callable[[str], Path]) -> MetadataImage:
    return metadata_of(str(corpus("kafka43-clean"))).image()


def cut(path: Path, batches: int) -> tuple[bytes, bytes, int]:
    """Splits the log after `batches` batches; returns both parts and the offset between them."""
    data = (path / "__cluster_metadata-0" / LOG).read_bytes()
    headers = list(walk(data))
    position = headers[batches].position
    return data[:position], data[position:], headers[batches].base_offset


def empty(path: Path) -> Path:
    """Empties the partition's directory; returns its path."""
    partition = path / "__cluster_metadata-0"
    for file in partition.iterdir():
        file.unlink()
    return partition


def test_a_growing_log_is_read_on(copy: Path, whole: MetadataImage) -> None:
    front, back, _ = cut(copy, 40)
    log = empty(copy) / LOG
    log.write_bytes(front)
    metadata = metadata_of(str(copy))
    first = metadata.image()
    assert 0 < len(first.topics) < len(whole.topics)
    with log.open("ab") as broker:
        broker.write(back)
    assert metadata.image() == whole


@pytest.mark.parametrize("batches", [1, 40, 80])
def test_a_snapshot_stands_for_the_log_before_it(
    copy: Path, whole: MetadataImage, batches: int
) -> None:
    front, back, offset = cut(copy, batches)
    partition = empty(copy)
    (partition / f"{offset:020d}-0000000001.checkpoint").write_bytes(front + FOOTER)
    (partition / "00000000000000000000-0000000000.checkpoint").write_bytes(b"older")
    (partition / f"{offset:020d}.log").write_bytes(back)
    metadata = metadata_of(str(copy))
    assert metadata.image() == whole
    assert metadata.problems == []


def test_a_snapshot_that_the_log_has_not_reached(copy: Path, whole: MetadataImage) -> None:
    data = (copy / "__cluster_metadata-0" / LOG).read_bytes()
    partition = empty(copy)
    (partition / "00000000000000000999-0000000001.checkpoint").write_bytes(data + FOOTER)
    (partition / LOG).touch()
    metadata = metadata_of(str(copy))
    assert metadata.image() == whole
    assert metadata.image() == whole
    assert metadata.problems == []


def test_what_is_in_no_snapshot_and_not_in_the_log_is_reported(copy: Path) -> None:
    _, back, offset = cut(copy, 40)
    (empty(copy) / f"{offset:020d}.log").write_bytes(back)
    metadata = metadata_of(str(copy))
    metadata.image()
    assert metadata.problems == [
        f"{copy}/__cluster_metadata-0: offsets 0 to {offset - 1} are in no snapshot and not in "
        "the log"
    ]


def test_a_snapshot_that_was_cut_off_is_reported(copy: Path, whole: MetadataImage) -> None:
    """Also between two batches. A whole one, or the log from its beginning, is preferred."""
    front, back, offset = cut(copy, 40)
    partition = empty(copy)
    snapshot = partition / f"{offset:020d}-0000000001.checkpoint"
    log = partition / f"{offset:020d}.log"
    log.write_bytes(back)
    for size in (0, list(walk(front))[20].position, len(front)):
        snapshot.write_bytes(front[:size])
        metadata = metadata_of(str(copy))
        image = metadata.image()
        assert (image == whole) == (size == len(front))
        assert metadata.problems == [
            f"{snapshot}: position {size}: the snapshot has no footer, its end may be missing"
        ]
    log.unlink()
    (partition / LOG).write_bytes(front + back)
    snapshot.write_bytes(b"")
    assert metadata_of(str(copy)).image() == whole


def test_offsets_that_the_log_leaves_out_are_reported(copy: Path, whole: MetadataImage) -> None:
    log = copy / "__cluster_metadata-0" / LOG
    data = log.read_bytes()
    headers = list(walk(data))
    first, second, third = (headers[n] for n in (20, 40, 60))
    log.write_bytes(data[: first.position] + data[second.position : third.position])
    (log.parent / f"{third.base_offset + 3:020}.log").write_bytes(b"")
    metadata = metadata_of(str(copy))
    assert metadata.image() != whole
    what = f"offsets {first.base_offset} to {second.base_offset - 1} are missing"
    assert metadata.problems[0] == f"{log}: position {first.position}: {what}"
    # What is missing above the offset that is shown does not matter.
    assert metadata.image_at(first.base_offset).problems == ()
    assert len(metadata.image_at(second.base_offset).problems) == 1


def test_a_segment_that_is_missing_is_reported(copy: Path, whole: MetadataImage) -> None:
    front, back, offset = cut(copy, 40)
    partition = empty(copy)
    (partition / LOG).write_bytes(front)
    second = partition / f"{offset:020}.log"
    second.write_bytes(back)
    metadata = metadata_of(str(copy))
    assert (metadata.image(), metadata.problems) == (whole, [])
    first, third = list(walk(back))[:3:2]
    second.unlink()
    third_path = partition / f"{third.base_offset:020}.log"
    third_path.write_bytes(back[third.position :])
    metadata = metadata_of(str(copy))
    metadata.image()
    what = f"offsets {first.base_offset} to {third.base_offset - 1} are missing"
    assert metadata.problems == [f"{third_path}: position 0: {what}"]


@pytest.mark.timeout(60)
def test_a_snapshot_that_cannot_be_read_is_reported_and_passed_over(copy: Path) -> None:
    partition = copy / "__cluster_metadata-0"
    os.mkfifo(partition / "00000000000000000009-0000000001.checkpoint")
    (partition / "00000000000000000000-0000000001.checkpoint").write_bytes(b"\xff" * 100)
    metadata = metadata_of(str(copy))
    assert len(metadata.image().topics) > 20
    assert "9-0000000001.checkpoint: a FIFO" in metadata.problems[0]
    assert "0-0000000001.checkpoint: position 0" in metadata.problems[1]


def test_a_record_that_is_garbage_is_reported_and_the_rest_counts(
    copy: Path, whole: MetadataImage
) -> None:
    partition = copy / "__cluster_metadata-0"
    end = list(walk((partition / LOG).read_bytes()))[-1].last_offset + 1
    size = (partition / LOG).stat().st_size
    garbage = [SimpleRecord(value=b"\x01\x02"), SimpleRecord(value=None)]
    with (partition / LOG).open("ab") as broker:
        broker.write(build_batch(garbage, BatchFields(base_offset=end)))
    metadata = metadata_of(str(copy))
    assert metadata.image() == whole
    assert metadata.problems == [
        f"{partition}/{LOG}: position {size}: offset {each}: a varint extends past the end of its"
        " record"
        for each in (end, end + 1)
    ]


def test_a_damaged_log_is_reported_and_read_past_the_damage(copy: Path) -> None:
    partition = copy / "__cluster_metadata-0"
    data = bytearray((partition / LOG).read_bytes())
    hurt = list(walk(bytes(data)))[40]
    data[hurt.position + hurt.size - 1] ^= 1
    (partition / LOG).write_bytes(data)
    metadata = metadata_of(str(copy))
    assert len(metadata.image().topics) > 10
    assert f"{LOG}: position {hurt.position}" in metadata.problems[0]


def test_records_that_replaced_others_count(copy: Path, whole: MetadataImage) -> None:
    """As on a follower whose leader has other records, and more of them."""
    front, back, offset = cut(copy, 40)
    log = empty(copy) / LOG
    user = b"\1\x0b\0\6other\1\2s\2k\2k\0\0\x10\0\0"
    other = build_batch([SimpleRecord(value=user)], BatchFields(base_offset=offset))
    assert len(other) < len(back)
    log.write_bytes(front + other)
    metadata = metadata_of(str(copy))
    assert set(metadata.image().scram_users) == {"other"}
    log.write_bytes(front + back)
    assert metadata.image() == whole


def test_a_log_that_was_cut_back_is_read_again(copy: Path, whole: MetadataImage) -> None:
    front, back, _ = cut(copy, 40)
    log = empty(copy) / LOG
    log.write_bytes(front + back)
    metadata = metadata_of(str(copy))
    assert metadata.image() == whole
    os.truncate(log, len(front))
    assert 0 < len(metadata.image().topics) < len(whole.topics)
