"""Reading leaves no trace: no byte, no name, no time of a file or directory, not even of access."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kafkafs.storage.engine import Engine
from kafkafs.storage.errors import StorageError
from kafkafs.storage.format.columns import Columns
from kafkafs.storage.log.transactions import Isolation
from kafkafs.storage.log.view import View
from tests import answers

#: Older than any file: with it even a mount with `relatime` notes the next access.
LONG_AGO_NS = 1_000_000_000 * 10**9

#: Run in a process of its own, because an audit hook cannot be taken away again.
WATCHED = """
import os, sys
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {
    "os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.removexattr", "os.rename",
    "os.rmdir", "os.setxattr", "os.symlink", "os.truncate", "os.utime", "shutil.copyfile",
    "fcntl.fcntl", "fcntl.flock", "fcntl.ioctl", "fcntl.lockf",
}
from tests.test_untouched import read_everything
def watch(event, arguments):
    if event in CHANGES or (event == "open" and arguments[2] & WRITING):
        print(event, arguments, flush=True)
        os._exit(3)
sys.addaudithook(watch)
print(read_everything(sys.argv[1:]))
"""


def log_dirs(corpus: Path) -> list[str]:
    """The log directories of a corpus: itself, or those inside."""
    return sorted(str(path.parent) for path in corpus.rglob("meta.properties"))


def read_everything(paths: list[str]) -> int:
    """Asks an engine for all it can tell, in both isolation levels; how many records it gave."""
    engine = Engine(paths)
    views = [
        engine.log(topic, partition).view()
        for topic, partitions in engine.topics().items()
        for partition in partitions
    ]
    return sum(read_view(view, isolation) for view in views for isolation in Isolation)


def read_view(view: View, isolation: Isolation) -> int:
    """The same for one partition and level; what cannot be found is of no interest here."""
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
    done = subprocess.run(
        [sys.executable, "-B", "-c", WATCHED, *log_dirs(corpus("kafka43-crash"))],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) > 0


def times_and_more(path: Path) -> tuple[int | float, ...]:
    """All that `stat` tells, the three times to the nanosecond."""
    stat = path.lstat()
    return *stat, stat.st_atime_ns, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_blocks
