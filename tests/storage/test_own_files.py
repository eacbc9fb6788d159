"""Tests the files that kafkafs writes into log directories, as malicious input. Records remain
readable whatever these files are, and writers report the file and what to do about it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkafs.storage.clock import SetClock
from kafkafs.storage.config.topic_file import TOPIC_CONFIGS_FILE
from kafkafs.storage.errors import CannotUndelete, CorruptError, StorageError
from kafkafs.storage.format.files.names import is_legal_topic
from kafkafs.storage.format.files.properties import format_properties, parse_properties
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.ingest.commit_file import COMMIT_FILE
from kafkafs.storage.log_dirs.deleted_topics import (
    DELETED_PARTITION_FILE,
    DeletedPartition,
    _checksum,
    format_deleted_partition,
    parse_deleted_partition,
)
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.transactions.decisions import (
    TRANSACTIONS_FILE,
    format_decisions,
    parse_decisions,
)
from tests.building import build_batch
from tests.reading import read

NOW_MS = 1_700_000_000_000
FILES = (TOPIC_CONFIGS_FILE, COMMIT_FILE, TRANSACTIONS_FILE)
DELETED = DeletedPartition("t", "", 0, 1, 0, 1, -1, 70, NOW_MS, {"retention.ms": "-1"})


def open_engine(log_dir: Path, *, finds_deleted: bool = False) -> LogManager:
    return LogManager(str(log_dir), clock=SetClock(NOW_MS), finds_deleted=finds_deleted)


@pytest.fixture
def log_dir(tmp_path: Path) -> Iterator[Path]:
    """Makes a log directory with one record; checks that a file outside of it stays as it is."""
    path = tmp_path / "logs"
    with open_engine(path) as engine:
        engine.create_topic("t", 1)
        engine.writer("t", 0).append(build_batch([SimpleRecord(NOW_MS, b"k", b"v")]))
    outside = tmp_path / "outside"
    outside.write_bytes(b"0\nnot ours\n")
    yield path
    assert outside.read_bytes() == b"0\nnot ours\n"


def is_readable(log_dir: Path) -> bool:
    view = Engine([str(log_dir)]).log("t", 0).view()
    return [record.value for record in read(view)] == [b"v"]


def link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "outside")


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def socket_like(path: Path) -> None:
    os.mkfifo(path)


def too_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 30)


def unreadable_text(path: Path) -> None:
    path.write_bytes(b"\xff\x00\n[[\n" * 100)


IN_THE_PLACE: list[Callable[[Path], object]] = [
    link,
    dangling,
    socket_like,
    Path.mkdir,
    too_large,
    unreadable_text,
]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("put", IN_THE_PLACE)
def test_what_is_not_our_file_stops_writers_and_nobody_else(
    log_dir: Path, name: str, put: Callable[[Path], object]
) -> None:
    path = log_dir / name
    path.unlink(missing_ok=True)
    put(path)
    assert is_readable(log_dir)
    with pytest.raises(StorageError, match=name):
        open_engine(log_dir)
    assert is_readable(log_dir)
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()
    open_engine(log_dir).close()


@pytest.mark.parametrize("name", FILES)
def test_the_error_says_where_and_what_to_do(log_dir: Path, name: str) -> None:
    (log_dir / name).write_bytes(b"0\nwhat\n")
    with pytest.raises(
        CorruptError, match=r"position \d+: line [12]: .*; repair it, or move the file"
    ):
        open_engine(log_dir)


# -- deleted partitions ---------------------------------------------------------------------------


def deleted_dir(log_dir: Path) -> Path:
    with open_engine(log_dir) as engine:
        engine.delete_topic("t")
    (found,) = log_dir.glob("t-0.*-delete")
    return found


@pytest.mark.parametrize("put", IN_THE_PLACE)
def test_a_deleted_partition_without_its_file_cannot_come_back(
    log_dir: Path, put: Callable[[Path], object]
) -> None:
    path = deleted_dir(log_dir) / DELETED_PARTITION_FILE
    path.unlink()
    put(path)
    with open_engine(log_dir, finds_deleted=True) as engine:
        assert engine.deleted() == []
        with pytest.raises(CannotUndelete):
            engine.undelete("t")
    assert path.is_dir() or path.is_symlink() or path.exists()


def test_a_deleted_partition_comes_back_under_its_own_name_only(log_dir: Path) -> None:
    directory = deleted_dir(log_dir)
    other = directory.with_name(directory.name.replace("t-0", "other-0"))
    directory.rename(other)
    with open_engine(log_dir, finds_deleted=True) as engine:
        assert engine.deleted() == []
        with pytest.raises(CannotUndelete):
            engine.undelete("t")
    assert other.is_dir()
    other.rename(directory)
    with open_engine(log_dir, finds_deleted=True) as engine:
        engine.undelete("t")
    assert is_readable(log_dir)


def test_a_deleted_partition_that_is_there_twice_does_not_come_back(log_dir: Path) -> None:
    directory = deleted_dir(log_dir)
    stem, _, _ = directory.name.partition(".")
    shutil.copytree(directory, directory.with_name(f"{stem}.{'0' * 32}-delete"))
    with open_engine(log_dir, finds_deleted=True) as engine:
        assert engine.deleted() == []


@given(st.binary())
def test_any_bytes_are_a_deleted_partition_or_corrupt(data: bytes) -> None:
    try:
        parse_deleted_partition(data)
    except CorruptError:
        return
    raise AssertionError("accepted without a checksum")


@given(
    st.sampled_from([*parse_properties(format_deleted_partition(DELETED))]),
    st.text(max_size=8)
    | st.sampled_from(
        ["../x", "/etc", "", "-2", "9" * 30, "9" * 5000, "1_0", " 1", "\u0663", "t\n[x]"]
    ),
)
@example("topic", "../x")
@example("topic", "\ud800")
@example("config.retention.ms", "1\n[x]\nretention.ms = 0")
@example("partitions", "0")
def test_every_value_of_a_deleted_partition_is_checked(key: str, text: str) -> None:
    """The checksum is valid here."""
    values = parse_properties(format_deleted_partition(DELETED))
    del values["checksum"]
    values[key] = text
    try:
        values["checksum"] = _checksum(values)
    except UnicodeEncodeError:
        values["checksum"] = "0"
    try:
        found = parse_deleted_partition(format_properties(values, NOW_MS))
    except CorruptError:
        return
    assert is_legal_topic(found.topic)
    assert 0 <= found.partition < 1 << 31
    assert 0 < found.partitions < 1 << 31
    assert min(found.start_offset, found.recovery_point, found.size, found.deleted_at_ms) >= 0
    assert all(text.isprintable() for text in found.configs.values())
    assert parse_deleted_partition(format_deleted_partition(found)) == found


# -- transactions -------------------------------------------------------------------------------


@given(
    st.lists(
        st.sampled_from(
            [
                "0",
                "7",
                "t",
                "../x",
                "-1",
                "9" * 30,
                "9" * 5000,
                "\u0663",
                "1_0",
                "",
                " ",
                "\n",
                "\x85",
            ]
        ),
        max_size=9,
    )
)
@example(["0", " ", "7", " ", "t", " ", "0"])
def test_any_line_is_a_decision_or_corrupt(words: list[str]) -> None:
    data = f"0\n{''.join(words)}\n".encode()
    try:
        found = parse_decisions(data)
    except CorruptError as error:
        assert error.position >= 0  # noqa: PT017  both outcomes are right
        return
    assert parse_decisions(format_decisions(found)) == found
    assert all(is_legal_topic(topic) for each in found for topic, _ in each.partitions)
