"""What threads of Arrow read ends before the interpreter exits."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from kafkafs.sql.foreign_threads import Scans

_BATCH = pa.RecordBatch.from_pydict({"n": [1]})


def test_a_scan_ends_while_a_thread_reads_it() -> None:
    scans, began, ended = Scans(), threading.Event(), threading.Event()

    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            began.set()
            yield _BATCH

    def read() -> None:
        with pytest.raises(InterruptedError):
            for _ in scans.read(endless()):
                pass
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    began.wait()
    scans.end()
    assert ended.wait(60)


def test_a_scan_that_nobody_reads_any_more_may_stay_open() -> None:
    scans = Scans()
    scan = scans.read(iter([_BATCH] * 2))
    assert next(scan) is _BATCH
    scans.end()
    with pytest.raises(InterruptedError):
        next(scan)
    assert list(Scans().read(iter([_BATCH] * 2))) == [_BATCH] * 2
