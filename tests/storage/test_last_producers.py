"""Compares the producers of a partition opened read-only with real brokers' snapshots."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkafs.storage.format.files.snapshot import parse_producer_snapshot
from kafkafs.storage.log.load.last_producers import producers_of
from kafkafs.storage.log.state.producer_state import ProducerStateEntry
from kafkafs.storage.log_dirs.engine import Engine

CORPUS = "kafka43-clean"
# Partitions with several producers; `txn` has transactions, `txn-open` has an open one.
PARTITIONS = ["idem-0", "txn-0", "txn-open-0", "codec-zstd-0", "orders-1"]


def at_the_end(directory: Path) -> dict[int, ProducerStateEntry]:
    """Returns the producer state that the broker wrote when it stopped."""
    newest = max(directory.glob("*.snapshot"))
    states = map(ProducerStateEntry.from_snapshot, parse_producer_snapshot(newest.read_bytes()))
    return {state.producer_id: state for state in states}


def found(log_dir: Path, name: str, now_ms: int = 0) -> dict[int, ProducerStateEntry]:
    topic, _, number = name.rpartition("-")
    view = Engine(str(log_dir)).log(topic, int(number)).view()
    producers = producers_of(view, now_ms)
    assert producers.map_end_offset == view.end_offset
    return {state.producer_id: state for state in producers.states()}


@pytest.fixture
def copied(corpus: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Returns `copied(name)`, which makes a log directory with one partition of the corpus."""

    def copy(name: str) -> Path:
        shutil.copytree(corpus(CORPUS) / name, tmp_path / name)
        shutil.copy(corpus(CORPUS) / "meta.properties", tmp_path)
        return tmp_path

    return copy


@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize("snapshots_left", [None, 1, 0])
def test_as_the_broker_left_them(
    copied: Callable[[str], Path], name: str, snapshots_left: int | None
) -> None:
    """Uses the newest snapshot, an older one and the batches after it, or all batches."""
    log_dir = copied(name)
    expected = at_the_end(log_dir / name)
    snapshots = sorted((log_dir / name).glob("*.snapshot"))
    for path in snapshots[snapshots_left:] if snapshots_left is not None else []:
        path.unlink()
    states = found(log_dir, name)
    assert states.keys() == expected.keys()
    for producer_id, state in expected.items():
        # a snapshot retains only the last batch of each producer
        assert states[producer_id]._replace(batches=states[producer_id].batches[-1:]) == state


def test_a_broken_snapshot_is_passed_over(copied: Callable[[str], Path]) -> None:
    log_dir = copied("idem-0")
    expected = at_the_end(log_dir / "idem-0")
    newest = max((log_dir / "idem-0").glob("*.snapshot"))
    newest.write_bytes(newest.read_bytes()[:-1])
    assert found(log_dir, "idem-0").keys() == expected.keys()


def test_those_that_have_expired_are_forgotten(corpus: Callable[[str], Path]) -> None:
    assert found(corpus(CORPUS), "idem-0", now_ms=10**15) == {}


def test_a_partition_without_producers(corpus: Callable[[str], Path]) -> None:
    assert found(corpus(CORPUS), "empty-0") == {}
