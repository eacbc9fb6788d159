"""Kills processes with SIGKILL while they export and import, each at a random system call.

    python -m tests.crash.exporting DIRECTORY LIVES SEED

DIRECTORY has the log directory `source`. Each process (a life) begins or resumes the same export,
with several threads, and is killed. After each, every file of the export is whole, and no record is
in two of them. In the end, the export is complete, and so are the logs that lives import from it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar
from unittest import mock

from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.transfer import (
    export_plan,
    unit_files,  # noqa: F401 - imported before any fork
)
from kafkafs.storage.operations.transfer.export import export
from kafkafs.storage.operations.transfer.import_ import Import, import_logs
from kafkafs.storage.operations.transfer.record_reading import read_file
from kafkafs.storage.operations.transfer.request import Export
from tests.faults import FailingCalls
from tests.reading import Plain, read

T = TypeVar("T")

#: The exit code of a process that was not killed.
DONE: Final = 7
#: Calls that a whole run makes, at most.
MOST_CALLS: Final = 400

Key = tuple[str, int]


class KillingCalls(FailingCalls):
    """Kills the process instead of making a call."""

    def __init__(self, at: int) -> None:
        super().__init__(-1, 0)
        self._at = at
        self._count = 0

    def _call(self, kind: str, about: str, call: Callable[[], T]) -> T:
        self._count += 1
        if self._count > self._at:
            os.kill(os.getpid(), signal.SIGKILL)
        return call()


def run_export(root: Path, **settings: Any) -> None:
    """Exports `source` in small units to `out`, by the hour."""
    request = Export(str(root / "out"), by="hour", **settings)
    with mock.patch.object(export_plan, "_LEAST_BYTES", 400):
        rows = list(export(Engine(str(root / "source")), request))
    assert len(rows) > 1


def run_import(root: Path) -> None:
    """Imports what was exported into `in`."""
    request = Import.of(str(root / "out"))
    with LogManager(str(root / "in")) as engine:
        list(import_logs(engine, request))


def contents(log_dir: Path) -> dict[Key, list[Plain]]:
    engine = Engine(str(log_dir))
    found = {
        (topic, number): read(engine.log(topic, number).view())
        for topic, numbers in engine.topics().items()
        for number in numbers
    }
    return {key: records for key, records in found.items() if records}


def exported(output: Path) -> dict[Key, list[int]]:
    """Returns the offsets in all files that a reader of the tree would read; each is whole."""
    from kafkafs.storage.io.disk import DirFd

    found: dict[Key, list[int]] = {}
    for path in output.glob("topic=*/**/[!.]*"):
        if path.is_file():
            topic = path.relative_to(output).parts[0].removeprefix("topic=")
            for batch in read_file(DirFd(str(path.parent)).open(path.name)):
                for number, offset in zip(
                    batch.column("partition").to_pylist(),
                    batch.column("offset").to_pylist(),
                    strict=True,
                ):
                    found.setdefault((topic, number), []).append(offset)
    return {key: sorted(offsets) for key, offsets in found.items()}


def check_parts(root: Path) -> int:
    """Checks an export that was interrupted; returns the number of its records."""
    source, found = contents(root / "source"), exported(root / "out")
    for key, offsets in found.items():
        assert len(set(offsets)) == len(offsets), f"{key}: a record is in two files"
        assert set(offsets) <= {record.offset for record in source[key]}
    return sum(map(len, found.values()))


def check_whole(root: Path) -> None:
    """Checks an export that is complete."""
    source, found = contents(root / "source"), exported(root / "out")
    assert found == {key: [record.offset for record in all_] for key, all_ in source.items()}
    assert (root / "out/_SUCCESS").exists()
    leftovers = [path for path in (root / "out").rglob(".*") if path.is_file()]
    assert leftovers == []


def lived(work: Callable[[Path], None], root: Path, at: int) -> bool:
    """Runs a life that is killed at its call number `at`. Returns whether it ended before."""
    child = os.fork()
    if child == 0:
        try:
            with replaced(KillingCalls(at)):
                work(root)
            os._exit(DONE)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    assert os.waitstatus_to_exitcode(status) == DONE, "a life failed"
    return True


def main() -> None:
    root, lives, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    chance, tally = random.Random(seed), Counter[str]()
    for _ in range(lives):
        ended = lived(run_export, root, chance.randrange(MOST_CALLS))
        tally["exports"] += ended
        tally["killed exports"] += not ended
        tally["records seen"] += check_parts(root) if (root / "out").exists() else 0
    assert lived(run_export, root, sys.maxsize)
    check_whole(root)
    for _ in range(lives):
        ended = lived(run_import, root, chance.randrange(MOST_CALLS))
        tally["imports"] += ended
        tally["killed imports"] += not ended
    assert lived(run_import, root, sys.maxsize)
    assert contents(root / "in") == contents(root / "source")
    print(dict(tally))


if __name__ == "__main__":
    main()
