"""Tests of writing verbs on a full disk: reports separate what was done from what was not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import kafkafs as package
from kafkafs import NotClosed
from tests.cli.results import Kafkafs

WARNING = "all changes are on disk, but the directory could not be closed cleanly"


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """Log directories on a disk without a free block, with the topics `t`, `u` and `kept`, which
    has configs and was cleaned. The shutdown was unclean, so opening them frees nothing either."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True)
    try:
        data = place / "data"
        with package.open(data, writable=True) as directory:
            for topic in ("t", "u"):
                directory.create_topic(topic)
                directory[topic, 0].append([b"first"])
            directory.create_topic("kept", 2, {"cleanup.policy": "compact"})
        (data / ".kafka_cleanshutdown").unlink()
        (data / "cleaner-offset-checkpoint").write_text("0\n2\nkept 0 0\nkept 1 0\n")
        _fill(place / "filling")
        yield data
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    assert shutil.disk_usage(path).free == 0


def values(data: Path, topic: str) -> list[bytes | None]:
    with package.open(data) as directory:
        return [record.value for record in directory[topic, 0].records()]


def test_lines_that_were_appended_are_no_failure(
    kafkafs: Kafkafs, full: Path, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_bytes(b"second\n")
    result = kafkafs("append", full, "t/0", tmp_path / "lines")
    assert (result.exit_code, result.stdout) == (0, "t/0: 1 records, offsets 1\n")
    assert WARNING in result.stderr
    assert "No space left on device" in result.stderr
    assert values(full, "t") == [b"first", b"second"]


def test_lines_for_which_there_is_no_room_are_a_failure(
    kafkafs: Kafkafs, full: Path, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_bytes(b"x" * 9000 + b"\n")
    result = kafkafs("append", full, "t/0", tmp_path / "lines")
    assert result.exit_code == 1
    assert f"{0:020}.log: No space left on device" in result.stderr
    assert WARNING not in result.stderr
    assert values(full, "t") == [b"first"]


def test_a_topic_that_was_deleted_is_no_failure(kafkafs: Kafkafs, full: Path) -> None:
    result = kafkafs("topic", "delete", full, "u")
    assert (result.exit_code, result.stdout) == (0, "u: deleted\n")
    assert WARNING in result.stderr
    assert list(package.open(full).topics) == ["kept", "t"]
    os.unlink(full.parent / "filling")
    assert kafkafs("topic", "create", full, "u").exit_code == 0
    assert values(full, "u") == []
    assert kafkafs("verify", full).exit_code == 0


def test_a_topic_whose_settings_could_not_be_removed_is_deleted_all_the_same(
    kafkafs: Kafkafs, full: Path
) -> None:
    result = kafkafs("topic", "delete", full, "kept")
    assert (result.exit_code, result.stdout) == (0, "kept: deleted\n")
    assert "topic kept is deleted, but its configs are still in kafkafs's own" in result.stderr
    assert "kafkafs.topics.tmp: No space left on device" in result.stderr
    assert list(package.open(full).topics) == ["t", "u"]
    os.unlink(full.parent / "filling")
    assert kafkafs("topic", "create", "-p", "2", full, "kept").exit_code == 0
    assert kafkafs("topic", "config", full, "kept").output == ""
    assert (full / "cleaner-offset-checkpoint").read_text() == "0\n0\n"
    assert kafkafs("verify", full).exit_code == 0


def test_python_is_told_that_the_changes_are_kept(full: Path) -> None:
    directory = package.open(full, writable=True)
    directory["t", 0].append([b"second"])
    with pytest.raises(NotClosed, match=WARNING):
        directory.close()
    assert values(full, "t") == [b"first", b"second"]
