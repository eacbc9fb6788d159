"""Fixtures for every test: the corpora that real brokers wrote, and Kafka's answers about them."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests import answers
from tests.profiles import use_profile
from tests.spark import class_data

# Background jobs of a shell ignore Ctrl-C, and so would all processes started by the tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Collecting makes hundreds of thousands of objects that stay; to look through them again and again
# would take a fifth of its time in every process. `pytest_collection_finish` continues.
gc.disable()

use_profile()

#: The directories of tests are in memory if this much is free there: thousands of times they wait
#: until something is on the disk.
MEMORY, ENOUGH_BYTES = "/dev/shm", 8 << 30
if os.access(MEMORY, os.W_OK):
    space = os.statvfs(MEMORY)
    if space.f_bavail * space.f_frsize >= ENOUGH_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)

# For all drivers, however a test starts them.
os.environ["SPARK_SUBMIT_OPTS"] = class_data.options()

#: Fixtures that take seconds to set up, the longest first, such as a session of Spark, whose first
#: queries compile much, or a running broker's client: the tests that use one share it in one
#: process.
SHARED = ("spark", "cluster", "driver", "ask", "built", "printed", "browser", "utf8", "large")
#: The choice of the last step of tests/run.sh, and what such tests have in their file.
NOT_QUICK = "slow or broker or spark"
MARKS = re.compile(r"\bmark\.(slow|broker|spark)\b")
#: A test with a longer timeout starts early, because it takes a large part of the whole run.
LONG_SECONDS = 1000
#: So many characters or bytes of a parameter are part of a test's name.
LONG_NAME = 60


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shortens the names of tests with large parameters: those of megabytes take seconds to escape
    and to send, and half an hour under the address sanitizer."""
    if isinstance(val, str | bytes) and len(val) > LONG_NAME:
        return f"{val[:LONG_NAME]!a}-{len(val)}"
    return None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Spares each process of the last step of tests/run.sh the import of files with quick tests
    alone."""
    if config.option.markexpr != NOT_QUICK or not collection_path.name.startswith("test_"):
        return None
    return None if _has_marks(collection_path) else True


@cache
def _has_marks(path: Path) -> bool:
    """Returns whether a file has, as its text shows, tests that are not quick."""
    return path.parent.name == "broker" or bool(MARKS.search(path.read_text(encoding="utf-8")))


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Groups the tests that share what is expensive, and sorts them so that no process runs alone
    at the end: first what takes long, then brokers, which mostly wait, then by timeout."""

    def urgency(item: pytest.Item) -> tuple[int, float]:
        marker = item.get_closest_marker("timeout")
        patience = float(marker.args[0]) if marker is not None else 300.0
        if item.get_closest_marker("spark") is not None:
            return 0, 0.0
        if patience > LONG_SECONDS:
            return 1, -patience
        return (2 if _is_for_brokers(item) else 3), -patience

    for item in items:
        if any(item.get_closest_marker(name) for name in NOT_QUICK.split(" or ")):
            assert _has_marks(item.path), f"its marks are not in its text: {item.nodeid}"
    items.sort(key=urgency)
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            names = [name for name in SHARED if name in getattr(item, "fixturenames", ())]
            if names:
                item.add_marker(pytest.mark.xdist_group(names[0]))


@pytest.hookimpl(trylast=True)  # after xdist has read the groups
def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuses a pytest-xdist that ignores the groups, since each process would set up all that is
    shared. Spares the garbage collector the collected tests."""
    gc.freeze()
    gc.enable()
    if not session.config.getoption("loadgroup", False):
        return
    for item in session.items:
        group = item.get_closest_marker("xdist_group")
        if group is not None and not item.nodeid.endswith(f"@{group.args[0]}"):
            raise RuntimeError(f"{item.nodeid}: pytest-xdist ignores group {group.args[0]}")


def _is_for_brokers(item: pytest.Item) -> bool:
    return item.path.parent.name == "broker"


class Corpora:
    """The corpora, each unpacked on first use and shared by all tests, which only read them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._unpacked: dict[str, dict[str, tuple[int, ...]]] = {}

    def path(self, name: str) -> Path:
        """Returns the log directory `name` as its broker left it. To write, use
        `writable_corpus`."""
        directory = self._root / name
        if name not in self._unpacked:
            archives = [answers.DATA / place / f"{name}.tar.gz" for place in ("corpora", "others")]
            archive = next(path for path in archives if path.exists())
            # GNU tar rather than `tarfile`, because it keeps the holes of preallocated indexes.
            subprocess.run(
                ["tar", "-xzf", archive, "-C", self._root, "--no-same-owner"], check=True
            )
            self._unpacked[name] = fingerprint(directory)
        return directory

    def changed(self) -> list[str]:
        """Returns the files and directories that are no longer as they were unpacked."""
        return [
            f"{name}/{path}"
            for name, before in self._unpacked.items()
            for path in differences(before, fingerprint(self._root / name))
        ]


def fingerprint(directory: Path) -> dict[str, tuple[int, ...]]:
    """Returns what `stat` reports for everything under `directory`: any changed byte, name or mode
    shows.

    The proof is the time of the last status change (ctime): the kernel updates it on every write,
    rename, truncation and chmod, and no program can set it back.
    """
    found: dict[str, tuple[int, ...]] = {}
    for folder, folders, files in os.walk(directory):
        for name in (".", *folders, *files):
            path = os.path.join(folder, name)
            stat = os.lstat(path)
            found[os.path.relpath(path, directory)] = (
                stat.st_ino,
                stat.st_mode,
                stat.st_nlink,
                stat.st_size,
                stat.st_mtime_ns,
                stat.st_ctime_ns,
            )
    return found


def differences(before: dict[str, tuple[int, ...]], after: dict[str, tuple[int, ...]]) -> list[str]:
    """Returns the names whose fingerprints differ, or that only one side has."""
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpora]:
    """All corpora; the session fails if a test changed one of them."""
    shared = Corpora(tmp_path_factory.mktemp("corpora"))
    yield shared
    changed = shared.changed()
    assert not changed, f"reading changed {len(changed)} files of the corpora: {changed[:10]}"


@pytest.fixture(scope="session")
def corpus(corpora: Corpora) -> Callable[[str], Path]:
    """`corpus(name)` is the unpacked log directory, shared by all tests and read-only."""
    return corpora.path


@pytest.fixture
def writable_corpus(corpora: Corpora, tmp_path: Path) -> Callable[[str], Path]:
    """`writable_corpus(name)` is a copy for one test, to damage or to give to a broker."""

    def copy(name: str) -> Path:
        target = tmp_path / name
        source = corpora.path(name)
        subprocess.run(["cp", "-a", "--sparse=always", source, target], check=True)
        return target

    return copy


@pytest.fixture(scope="session")
def expected() -> Callable[[str], Path]:
    """`expected(name)` is the directory of Kafka's answers, which `tests.answers` reads."""
    return answers.directory
