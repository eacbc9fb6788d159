"""Tests that a read-only process keeps no files of deleted topics open."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkafs
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log_dirs import engine
from tests.building import BatchFields, build_batch
from tests.logs import TopicSettings, write_log_dir, write_partition

TOPICS = 100


def make(directory: Path, topic: str) -> None:
    batch = build_batch([SimpleRecord(1_700_000_000_000, b"k", b"v")], BatchFields(base_offset=0))
    write_partition(directory / f"{topic}-0", [batch], TopicSettings())


@pytest.mark.parametrize(
    "look",
    [
        lambda opened: opened.topics,
        lambda opened: opened["kept", 0],
        lambda opened: opened.kept.end_offset,
        lambda opened: opened.kept.scan().read_all(),
        lambda opened: list(opened.kept.records()),
    ],
    ids=["topics", "partition", "end", "scan", "records"],
)
def test_deleted_topics_are_let_go_of_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[Opened], object]
) -> None:
    directory = tmp_path / "logs"
    write_log_dir(directory, {("kept", 0): 1})
    make(directory, "kept")
    names = [f"t{number}" for number in range(TOPICS)]
    for name in names:
        make(directory, name)
    monkeypatch.setattr(engine, "CLOSE_REMOVED_SECONDS", 1e9)
    with kafkafs.open(directory) as opened:
        kept = Opened(opened)
        kept.kept.scan().read_all()
        before = len(os.listdir("/proc/self/fd"))
        # Tails that are still referenced, and partitions that are not.
        held = [opened[name, 0] for name in names[:10]]
        tails = [partition.records() for partition in held]
        assert [next(tail).value for tail in tails] == [b"v"] * len(tails)
        for name in names:
            opened[name, 0].scan().read_all()
        assert len(os.listdir("/proc/self/fd")) > before + TOPICS
        for name in names:
            shutil.rmtree(directory / f"{name}-0")
        monkeypatch.setattr(engine, "CLOSE_REMOVED_SECONDS", 0)
        look(kept)
        look(kept)  # the first look does not close what it opened itself
        assert len(os.listdir("/proc/self/fd")) <= before + 16


class Opened:
    """An open directory, and a partition of it that is not deleted."""

    def __init__(self, directory: kafkafs.LogDirectories) -> None:
        self._directory = directory
        self.kept = directory["kept", 0]

    @property
    def topics(self) -> object:
        return self._directory.topics

    def __getitem__(self, key: tuple[str, int]) -> object:
        return self._directory[key]
