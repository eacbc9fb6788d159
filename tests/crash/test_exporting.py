"""Export and import through power cuts, failing calls and kills: no file is incomplete under its
final name, nothing is there twice, and the same command finishes the work."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkafs.storage.errors import StorageError
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.transfer.parquet_import import ImportParquet, import_parquet
from tests.conftest import differences, fingerprint
from tests.crash.checks import left_by, refuse_complaints
from tests.crash.exporting import (
    check_parts,
    check_whole,
    contents,
    run_export,
    run_import,
)
from tests.crash.moments import moments, seeds
from tests.faults import FailingCalls, RecordingCalls, crash_states
from tests.readme import ROOT

HOUR = 3_600_000
KNOWN = (os.strerror(errno.ENOSPC), os.strerror(errno.EIO))


@pytest.fixture
def source(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log directory with a few small segments; one processor, so that calls have an order."""
    path = memory_path / "source"
    with LogManager(str(path)) as engine:
        for topic, count in {"orders": 2, "empty": 1}.items():
            engine.create_topic(topic, count, {"internal.segment.bytes": "400"})
        for number in range(2):
            for value in range(12):
                record = SimpleRecord(value * HOUR // 4, b"k", b"v%d" % value * 10)
                engine.writer("orders", number).append_records(RecordColumns.from_records([record]))
    monkeypatch.setattr("kafkafs.storage.concurrency.unit_threads.processors", lambda: 1)
    return path


@pytest.mark.parametrize("format", ["parquet", "jsonl", "csv", "arrow"])
def test_power_cuts_of_an_export(source: Path, memory_path: Path, format: str) -> None:
    root = memory_path / "root"
    shutil.copytree(source, root / "source")
    before = fingerprint(source)
    recording = RecordingCalls(root)
    with replaced(recording):
        run_export(root, format=format)
    check_whole(root)
    shutil.rmtree(root)
    seen = set()
    for state in crash_states(recording, prefixes=moments(len(recording.operations), 29)):
        with left_by(state, root):
            if not (root / "source").exists():
                shutil.copytree(source, root / "source")
            if (root / "out").exists():
                seen.add(check_parts(root))
            run_export(root, format=format)
            check_whole(root)
    assert len(seen) > 1
    assert differences(before, fingerprint(source)) == []


def test_power_cuts_of_an_import(source: Path, memory_path: Path) -> None:
    root = memory_path / "root"
    expected = contents(source)
    run_export(memory_path)
    shutil.copytree(memory_path / "out", root / "out")
    recording = RecordingCalls(root)
    with replaced(recording):
        run_import(root)
    shutil.rmtree(root)
    found = []
    for state in crash_states(recording, prefixes=moments(len(recording.operations), 61)):
        with left_by(state, root):
            shutil.rmtree(root / "out", ignore_errors=True)
            shutil.copytree(memory_path / "out", root / "out")
            if (root / "in").exists():
                with LogManager(str(root / "in")) as engine:
                    refuse_complaints(engine)
                found.append(contents(root / "in"))
                assert found[-1] in ({}, expected)
            run_import(root)
            assert contents(root / "in") == expected
    assert {} in found


def test_power_cuts_of_an_import_of_other_files(source: Path, memory_path: Path) -> None:
    root, files = memory_path / "root", memory_path / "files"
    files.mkdir()
    for name in "ab":
        values = [f"{name}{number}" for number in range(6)]
        pq.write_table(pa.table({"value": values}), files / f"{name}.parquet")

    def run() -> None:
        request = ImportParquet.of(str(files), Selection.of("orders"))
        with LogManager(str(root / "source")) as engine:
            list(import_parquet(engine, request))

    def new() -> list[bytes]:
        logs = contents(root / "source").values()
        values = [record.value or b"" for log in logs for record in log]
        return sorted(value for value in values if value[:1] in (b"a", b"b"))

    shutil.copytree(source, root / "source")
    recording = RecordingCalls(root)
    with replaced(recording):
        run()
    everything = new()
    assert len(everything) == 12
    shutil.rmtree(root)
    counts = set()
    for state in crash_states(recording, prefixes=moments(len(recording.operations), 37)):
        with left_by(state, root):
            with LogManager(str(root / "source")) as engine:
                refuse_complaints(engine)
            counts.add(len(new()))
            run()
            assert new() == everything
    assert counts <= {0, 6, 12}


def reason(run: Callable[[Path], None], root: Path, failing: FailingCalls) -> str:
    """Returns why a run fails, "" if it succeeds, as an export does that reports a range as
    missing."""
    try:
        with replaced(failing):
            run(root)
    except OSError as error:
        return error.strerror or "?"
    except StorageError as error:
        return next((text for text in KNOWN if text in str(error)), str(error))
    return ""


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_every_call_of_an_export_fails_once(source: Path, memory_path: Path, error: int) -> None:
    """The error is passed on, or is a row; nothing incomplete is left; then the same export
    succeeds."""
    counting = FailingCalls(-1, error)
    with replaced(counting):
        run_export(memory_path)
    for at in moments(len(counting.made) - 1, 7):
        shutil.rmtree(memory_path / "out")
        failing = FailingCalls(at, error)
        assert reason(run_export, memory_path, failing) in ("", os.strerror(error))
        if (memory_path / "out").exists():
            check_parts(memory_path)
        run_export(memory_path)
        check_whole(memory_path)


def test_every_call_of_an_import_fails_once(source: Path, memory_path: Path) -> None:
    expected = contents(source)
    run_export(memory_path)
    counting = FailingCalls(-1, errno.ENOSPC)
    with replaced(counting):
        run_import(memory_path)
    for at in moments(len(counting.made) - 1, 23):
        shutil.rmtree(memory_path / "in")
        shutil.rmtree(memory_path / ".in.kafkafs-staging", ignore_errors=True)
        failing = FailingCalls(at, errno.ENOSPC)
        assert reason(run_import, memory_path, failing) in ("", os.strerror(errno.ENOSPC))
        run_import(memory_path)
        assert contents(memory_path / "in") == expected


@pytest.mark.parametrize("seed", seeds(40, 10))
def test_kills(memory_path: Path, source: Path, seed: int) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.crash.exporting", memory_path, "12", str(seed)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "killed exports" in run.stdout
