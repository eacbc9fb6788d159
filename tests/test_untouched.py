"""Reading leaves no trace: no byte, name or time of a file or directory changes, not even atime."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kafkafs.storage.errors import StorageError
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_dirs.engine import Engine
from tests import answers, watched

#: Older than any file: even a mount with `relatime` records the next access then.
LONG_AGO_NS = 1_000_000_000 * 10**9
ROOT = Path(__file__).parent.parent


def log_dirs(corpus: Path) -> list[str]:
    """Returns the log directories of a corpus: itself, or those inside."""
    return sorted(str(path.parent) for path in corpus.rglob("meta.properties"))


def read_everything(paths: list[str]) -> int:
    """Runs every query on an engine, in both isolation levels; returns the number of records
    read."""
    engine = Engine(paths)
    views = [
        engine.log(topic, partition).view()
        for topic, partitions in engine.topics().items()
        for partition in partitions
    ]
    return sum(read_view(view, isolation) for view in views for isolation in Isolation)


def read_view(view: View, isolation: Isolation) -> int:
    """Does the same for one partition and level, ignoring lookups that find nothing."""
    for offset in (view.start_offset, view.last(isolation) or 0):
        with suppress(StorageError):
            view.find(offset, isolation)
    with suppress(StorageError):
        view.offset_for_time(view.max_timestamp, isolation)
    parts = view.scan(isolation=isolation)
    return sum(len(part) for part in parts if isinstance(part, Columns))


@pytest.mark.parametrize("name", answers.CORPORA)
def test_not_even_a_time_of_access_changes(
    name: str, writable_corpus: Callable[[str], Path]
) -> None:
    corpus = writable_corpus(name)
    paths = log_dirs(corpus)
    everything = [corpus, *corpus.rglob("*")]
    for path in everything:
        os.utime(path, ns=(LONG_AGO_NS, path.stat().st_mtime_ns))
    before = {path: times_and_more(path) for path in everything}
    assert read_everything(paths) > 0
    assert {path: times_and_more(path) for path in everything} == before
    assert {corpus, *corpus.rglob("*")} == set(everything)


def test_nothing_is_opened_for_writing_and_no_lock_is_taken(corpus: Callable[[str], Path]) -> None:
    done = run_watched(__name__, *log_dirs(corpus("kafka43-crash")))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


def test_the_watch_sees_a_file_opened_for_writing(tmp_path: Path) -> None:
    done = run_watched("zipfile", "-c", str(tmp_path / "made.zip"), __file__)
    assert done.returncode == watched.STATUS
    assert "made.zip" in done.stderr
    assert list(tmp_path.iterdir()) == []


def run_watched(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `python -m` with these arguments; it exits at the first attempt to write."""
    command = [sys.executable, "-B", "-m", "tests.watched", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)


def times_and_more(path: Path) -> tuple[int | float, ...]:
    """Returns everything that `stat` reports, the three times to the nanosecond."""
    stat = path.lstat()
    return *stat, stat.st_atime_ns, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_blocks


if __name__ == "__main__":
    print(read_everything(sys.argv[1:]))
