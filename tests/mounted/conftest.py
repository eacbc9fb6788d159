"""Fixtures with a real mount. All tests under tests/mounted are marked `mounted`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.mounted.live import LiveLog
from tests.mounted.mounting import Mount, mounted

Mounting = Callable[..., Mount]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests in this directory, which need /dev/fuse."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.mounted)


@pytest.fixture(scope="session")
def clean(
    corpus: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A mount of the corpus kafka43-clean, shared by all tests."""
    with mounted([corpus("kafka43-clean")], tmp_path_factory.mktemp("clean")) as mount:
        yield mount.point


@pytest.fixture(scope="session")
def uncommitted(
    corpus: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The same, with the records of open and aborted transactions."""
    place = tmp_path_factory.mktemp("uncommitted")
    options = "isolation=read_uncommitted"
    with mounted([corpus("kafka43-clean")], place, options) as mount:
        yield mount.point


@pytest.fixture(scope="session")
def old(corpus: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A mount of the corpus kafka28, which has records of formats 0 and 1."""
    with mounted([corpus("kafka28")], tmp_path_factory.mktemp("old")) as mount:
        yield mount.point


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mounting]:
    """`mount(log_dir, options, settings)` mounts it for one test."""
    with ExitStack() as stack:

        def start(
            log_dirs: Path | str | Sequence[Path],
            options: str = "",
            settings: Mapping[str, str] | None = None,
        ) -> Mount:
            paths = [log_dirs] if isinstance(log_dirs, Path | str) else list(log_dirs)
            place = tmp_path / f"mount-{len(list(tmp_path.glob('mount-*')))}"
            place.mkdir()
            return stack.enter_context(mounted(paths, place, options, settings))

        yield start


@pytest.fixture
def live(tmp_path: Path) -> LiveLog:
    """A log directory with one partition `t-0` of six records, which the test appends to."""
    return LiveLog(tmp_path / "logs")
