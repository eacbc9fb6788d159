"""Tests of `kafkafs history`."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.log_manager import LogManager
from tests.building import BatchFields, build_batch
from tests.cli.results import Corpus, Kafkafs, lines_of, rows_of, stderr_of
from tests.logs import TopicSettings, write_topic


def test_a_table_and_json_lines(kafkafs: Kafkafs, clean: Path) -> None:
    rows = rows_of(kafkafs("history", "--json", clean, "compacted", "key-29"))
    assert [row["offset"] for row in rows] == [1689, 2654, 2871, 3007, 3041, 3410, 4764]
    head, *table = lines_of(kafkafs("history", clean, "compacted/0", "key-29"))
    assert head.split() == ["PARTITION", "OFFSET", "TIMESTAMP", "STATE", "FILE", "VALUE"]
    assert [line.split()[1] for line in table] == [str(row["offset"]) for row in rows]
    assert table[0].endswith("00001405.log.deleted  " + rows[0]["value"])
    assert " served " in table[-1]


def test_tombstones_and_all_partitions(kafkafs: Kafkafs, corpus: Corpus, clean: Path) -> None:
    table = lines_of(kafkafs("history", corpus("compact-after"), "cmp-tomb", "key-100"))
    assert any(line.endswith("(tombstone)") for line in table)
    rows = rows_of(kafkafs("history", "--json", clean, "orders", "customer-519"))
    assert {row["key"] for row in rows} == {"customer-519"}
    single = rows_of(kafkafs("history", "--json", clean, "orders/0", "customer-519"))
    assert [row for row in rows if row["partition"] == 0] == single


def test_a_deleted_topic(kafkafs: Kafkafs, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LogManager(str(data)) as engine:
        engine.create_topic("t")
        engine.writer("t", 0).append_records(RecordColumns.from_values([b"1"], [b"k"]))
        engine.delete_topic("t")
        engine.create_topic("u")
    (deleted,) = data.glob("t-0.*-delete")
    _, line = lines_of(kafkafs("history", data, "t", "k"))
    assert line.split("  ")[0] == "t/0"
    assert line.endswith(f"  in a deleted partition  {deleted.name}/{0:020}.log  1")
    (row,) = rows_of(kafkafs("history", "--json", data, "t/0", "k"))
    assert (row["served"], row["file"]) == (False, str(deleted / f"{0:020}.log"))
    shutil.rmtree(deleted)
    assert "no topic t" in stderr_of(kafkafs("history", data, "t", "k"))


def test_more_segments_than_files_may_be_open(
    kafkafs: Kafkafs, tmp_path: Path, file_limit: int
) -> None:
    batches = [
        build_batch([SimpleRecord(1, b"k", b"v", offset=at)], BatchFields(base_offset=at))
        for at in range(file_limit)
    ]
    root = write_topic(tmp_path / "data", batches, TopicSettings(segment_bytes=1))
    assert len(rows_of(kafkafs("history", "--json", root, "t", "k"))) == file_limit
    assert kafkafs("cat", root, "t/0/values").stdout == "v\n" * file_limit


@pytest.fixture
def file_limit() -> Iterator[int]:
    """Lowers the soft limit of open files to a few more than there are; returns it."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = len(os.listdir("/dev/fd")) + 40
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_what_does_not_exist(kafkafs: Kafkafs, clean: Path) -> None:
    error = stderr_of(kafkafs("history", clean, "compacted/0", "nobody"))
    assert error == "kafkafs: compacted/0: no record with key nobody is on the disk\n"
    assert "did you mean compacted" in stderr_of(kafkafs("history", clean, "compactd", "k"))
    assert "(it has 0)" in stderr_of(kafkafs("history", clean, "compacted/3", "k"))
    assert "missing argument 'KEY'" in stderr_of(kafkafs("history", clean, "compacted"), 2)
