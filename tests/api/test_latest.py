"""Tests of `Partition.latest` and `history`: the last record of a key, and all its versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kafkafs
from kafkafs.storage.errors import CorruptError
from tests import answers

Corpus = Callable[[str], Path]


@pytest.mark.parametrize("isolation", [answers.READ_COMMITTED, answers.READ_UNCOMMITTED])
@pytest.mark.parametrize("corpus_name", ["kafka28", "kafka43-clean"])
def test_every_key_of_every_partition(corpus: Corpus, corpus_name: str, isolation: str) -> None:
    with kafkafs.open(corpus(corpus_name)) as directory:
        for topic, number in answers.partitions_with_records(corpus_name):
            partition = directory[topic, number]
            answer = answers.records(corpus_name, topic, number, isolation)
            latest = {record.key: record for record in answer if record.key is not None}
            for key in sorted(latest)[:: len(latest) // 50 + 1]:
                record = partition.latest(key, isolation=isolation)
                assert record is not None
                expected = latest[key]
                found = (record.offset, record.key, record.value, record.timestamp)
                assert found == (expected.offset, key, expected.value, expected.timestamp)
            assert partition.latest(b"no such key", isolation=isolation) is None


def test_of_a_partition_that_is_written(tmp_path: Path) -> None:
    with kafkafs.open(tmp_path / "data", writable=True) as directory:
        directory.create_topic("t")
        partition = directory["t", 0]
        assert partition.latest(b"k") is None
        for value in (b"1", b"2", None, b"3"):
            partition.append([kafkafs.ProducerRecord(value, key=b"k")])
            record = partition.latest(b"k")
            assert record is not None
            assert record.value == value


def test_the_memory_is_set_by_its_name(corpus: Corpus) -> None:
    settings = {"kafkafs.key.cache.bytes": "1048576"}
    with kafkafs.open(corpus("kafka43-clean"), configs=settings) as directory:
        assert directory["orders", 0].latest(b"none") is None


def test_all_versions(writable_corpus: Corpus) -> None:
    root = writable_corpus("kafka43-clean")
    log = root / "compacted-0" / "00000000000000002780.log.deleted"
    with kafkafs.open(root, at="2026-09-03T02:00") as then:
        offsets = [each.record.offset for each in then["compacted", 0].history("key-29")]
        assert offsets == [1689, 2654, 2871]
    with kafkafs.open(root) as directory:
        partition = directory["compacted", 0]
        versions = list(partition.history("key-29"))
        assert [each.record.offset for each in versions][::2] == [1689, 2871, 3041, 4764]
        assert [each.is_served for each in versions] == [False] * 5 + [True] * 2
        latest = partition.latest(b"key-29")
        assert latest is not None
        assert versions[-1].record.value == latest.value
        log.write_bytes(b"x" * 100 + log.read_bytes()[100:])
        damaged: list[CorruptError] = []
        rest = list(partition.history(b"key-29", on_damage=damaged.append))
        assert len(rest) >= 4
        assert [each.file for each in damaged] == [str(log)]
        with pytest.raises(CorruptError, match="position 0"):
            list(partition.history("key-29"))
