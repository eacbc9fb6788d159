"""Tests of `Partition.latest`, the last record of a key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kafkafs
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
