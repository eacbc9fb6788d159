"""Compares the latest record of each key, and the list of keys, with a model, on changing logs."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkafs.storage.cleaner import live_keys
from kafkafs.storage.cleaner.offset_map import SLOT_BYTES, OffsetMap
from kafkafs.storage.cleaner.preview import latest
from kafkafs.storage.cleaner.preview.latest import LatestRecords
from kafkafs.storage.errors import ConfigError, CorruptError
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.log.append.writer import LogWriter
from kafkafs.storage.log.read.context import ReadContext
from kafkafs.storage.log.read.log import Log
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log.read.view import View
from tests import reading, writing
from tests.building import BatchFields, build_batch
from tests.kernel_forms import in_use, uncompiled
from tests.profiles import percent
from tests.reading import UNCOMMITTED
from tests.threads import running

Value = bytes | None
Rows = list[tuple[Value, Value]]  # key and value by offset
KEYS = [None, b"", b"a", b"b", b"c", b"key", b"\xff\x00/", b"k" * 300]
SEGMENT_BYTES = 2000
#: Memory for listing some dozen keys. Memory for one key at a time fails in one of a hundred runs:
#: two of 40 keys then share the smallest class of hashes.
LISTS = 5 * SLOT_BYTES


def appended(log: LogWriter, rows: Rows, together: int = 5, timestamp: int = writing.NOW) -> None:
    """Appends records in batches of `together`."""
    records = [SimpleRecord(timestamp, key, value) for key, value in rows]
    for low in range(0, len(records), together):
        log.append(bytearray(build_batch(records[low : low + together])))


def expected(rows: Rows, start: int = 0) -> dict[bytes, tuple[int, Value]]:
    """Returns the offset and value of the latest record of each key."""
    return {
        key: (offset, value)
        for offset, (key, value) in enumerate(rows)
        if key is not None and offset >= start
    }


def answered(
    records: LatestRecords,
    log: Log,
    keys: Iterable[bytes],
    isolation: Isolation = reading.COMMITTED,
) -> dict[bytes, tuple[int, Value]]:
    found = {}
    for key in keys:
        answer = records.find(log, key, isolation)
        if answer is not None:
            columns, row = answer
            assert columns.key(row) == key
            found[key] = int(columns.offsets[row]), columns.value(row)
    return found


def live_offsets(records: LatestRecords, log: Log) -> list[int]:
    kept = records.live(log)
    view = log.view()
    found = kept.mask(np.arange(view.start_offset, view.end_offset)).nonzero()[0]
    return [view.start_offset + int(at) for at in found]


def check(records: LatestRecords, log: Log, rows: Rows, start: int = 0) -> None:
    truth = expected(rows, start)
    asked = [key for key in KEYS if key is not None] + [b"never"]
    assert answered(records, log, asked) == truth
    if records._cache_bytes < LISTS:
        return  # not enough memory to list keys
    assert live_offsets(records, log) == sorted(
        offset for offset, value in truth.values() if value is not None
    )


APPEND, TRUNCATE, CHANGE, DELETE, REPLACE, LOOK = range(6)
ROWS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from([None, b"", b"v", b"w" * 200])),
    min_size=1,
    max_size=30,
)
STEPS = st.lists(st.tuples(st.integers(APPEND, LOOK), st.integers(0, 60), ROWS), max_size=12)
#: Memory for one key, a few, and all.
MEMORIES = st.sampled_from([0, LISTS, 12 * SLOT_BYTES, 1 << 20])


class ChangingLog:
    """A log that changes while a reader follows it; `rows` is what it should hold."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = writing.open_log(path, writing.config(segment_bytes=SEGMENT_BYTES))
        self.start = 0
        directory = DirFd(str(path.parent)).child(path.name)
        self.read = Log(directory, "t", 0, lambda: self.start, ReadContext())
        self.rows: Rows = []
        self._steps = 0

    def do(self, step: int, number: int, rows: Rows) -> None:
        self._steps += 1
        if step in (TRUNCATE, CHANGE):
            self._log.truncate_to(max(min(number, len(self.rows)), self.start))
            self.rows = self.rows[: self._log.end_offset]
        if step in (APPEND, CHANGE):
            appended(self._log, rows, together=1, timestamp=writing.NOW + self._steps)
            self.rows = self.rows + rows
            self._pass_time()
        elif step == DELETE:
            self.start = max(self.start, min(number, len(self.rows)))
        elif step == REPLACE:
            self._replace_segment(number)

    def _pass_time(self) -> None:
        """Sets the newest file's mtime. A log that was truncated and refilled to the same size is
        recognized by its mtime, whose clock is coarser than this test."""
        newest = max(self._path.glob("*.log"))
        os.utime(newest, ns=(self._steps, self._steps))

    def _replace_segment(self, number: int) -> None:
        """Replaces a segment's file by a copy with the same bytes."""
        files = sorted(self._path.glob("*.log"))[:-1]
        if files:
            copy = self._path / "copy"
            shutil.copy2(files[number % len(files)], copy)
            copy.rename(files[number % len(files)])


@settings(max_examples=percent(30))
@given(STEPS, MEMORIES)
def test_whatever_happens_to_a_log_the_answers_are_the_models(
    steps: list[tuple[int, int, Rows]], memory: int
) -> None:
    with TemporaryDirectory() as name:
        log, records = ChangingLog(Path(name) / "t-0"), LatestRecords(memory)
        for step, number, rows in steps:
            log.do(step, number, rows)
            if step == LOOK:
                answered(records, log.read, [KEYS[1 + number % 7] or b""])
            else:
                check(records, log.read, log.rows, log.start)


@pytest.fixture
def written(tmp_path: Path) -> tuple[Log, Rows]:
    """Writes several segments with 3,000 records of 700 keys; returns the log and the records."""
    chosen = random.Random(11)
    rows: Rows = [
        (b"key-%d" % chosen.randrange(700), None if chosen.random() < 0.2 else b"%d" % at)
        for at in range(3000)
    ]
    log = writing.open_log(tmp_path / "t-0", writing.config(segment_bytes=20_000))
    appended(log, rows)
    return reading.open_log(tmp_path / "t-0"), rows


@pytest.mark.parametrize("slots", [2, 100, 300, 5000])
def test_more_keys_than_memory_take_more_reading_and_give_the_same(
    written: tuple[Log, Rows], slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latest, "_STEP", 64)
    monkeypatch.setattr(latest, "FIRST_BYTES", 40 * SLOT_BYTES)
    monkeypatch.setattr(live_keys, "FIRST_BYTES", 40 * SLOT_BYTES)
    log, rows = written
    records = LatestRecords(slots * SLOT_BYTES)
    truth = expected(rows)
    keys = [*list(truth)[::7], b"key-", b"none"]
    assert answered(records, log, keys) == {key: truth[key] for key in keys if key in truth}
    if slots < 100:
        return  # more passes than a quick test can afford
    assert live_offsets(records, log) == sorted(
        offset for offset, value in truth.values() if value is not None
    )


def test_keys_of_one_class_that_do_not_fit_are_refused_with_the_settings_name(
    written: tuple[Log, Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_keys, "CLASSES", 1)
    with pytest.raises(ConfigError, match=r"kafkafs\.key\.cache\.bytes"):
        LatestRecords(100 * SLOT_BYTES).live(written[0])


def test_a_second_look_up_reads_nothing_but_the_record(
    written: tuple[Log, Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, rows = written
    records = LatestRecords(1 << 20)
    truth = expected(rows)
    assert answered(records, log, [b"none"]) == {}
    monkeypatch.setattr(View, "scan", lambda *_: pytest.fail("scanned"))
    assert answered(records, log, truth) == truth
    assert answered(records, log, [b"none"]) == {}


def test_of_a_log_that_grew_only_what_came_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writing.open_log(tmp_path / "t-0")
    appended(writer, [(b"old-%d" % at, b"v") for at in range(100)])
    log, records = reading.open_log(tmp_path / "t-0"), LatestRecords(1 << 20)
    assert answered(records, log, [b"none"]) == {}
    appended(writer, [(b"old-3", b"new"), (b"new", b"w")])
    ranges = []
    scan = View.scan

    def noted(view: View, *arguments: Any) -> object:
        ranges.append(arguments[:2])
        return scan(view, *arguments)

    monkeypatch.setattr(View, "scan", noted)
    found = answered(records, log, [b"old-3", b"old-4", b"new"])
    assert found == {b"old-3": (100, b"new"), b"old-4": (4, b"v"), b"new": (101, b"w")}
    assert ranges == [(100, 102)]


def test_a_hash_that_two_keys_share_misleads_nobody(
    written: tuple[Log, Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The map returns offset 2999, that of the last record, for every key."""
    log, rows = written
    truth = expected(rows)
    monkeypatch.setattr(OffsetMap, "get_key", lambda self, key: len(rows) - 1)
    keys = [*list(truth)[:5], rows[-1][0] or b"", b"none"]
    assert answered(LatestRecords(1 << 20), log, keys) == {k: truth[k] for k in keys if k in truth}


def test_open_and_aborted_transactions_count_only_uncommitted(tmp_path: Path) -> None:
    writer = writing.open_log(tmp_path / "t-0")
    appended(writer, [(b"a", b"1"), (b"b", b"1")])
    for producer, key in ((7, b"a"), (8, b"b")):
        fields = BatchFields(
            producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        sent = [SimpleRecord(writing.NOW, key, b"2")]
        writer.append(bytearray(build_batch(sent, fields)))
    writer.end_transaction(7, 0, commit=False)
    log, records = reading.open_log(tmp_path / "t-0"), LatestRecords(1 << 20)
    first = {b"a": (0, b"1"), b"b": (1, b"1")}
    assert answered(records, log, [b"a", b"b"]) == first
    second = {b"a": (2, b"2"), b"b": (3, b"2")}
    assert answered(records, log, [b"a", b"b"], UNCOMMITTED) == second
    writer.end_transaction(8, 0, commit=True)
    assert answered(records, log, [b"a", b"b"]) == {b"a": (0, b"1"), b"b": (3, b"2")}


@pytest.mark.parametrize("memory", [LISTS, 1 << 20])
def test_damage_behind_the_record_that_is_found_is_an_error(tmp_path: Path, memory: int) -> None:
    writer = writing.open_log(tmp_path / "t-0", writing.config(segment_bytes=400))
    rows: Rows = [(b"k%d" % at, bytes(50)) for at in range(40)]
    appended(writer, rows)
    file = sorted((tmp_path / "t-0").glob("*.log"))[3]
    data = bytearray(file.read_bytes())
    data[150] ^= 1
    file.write_bytes(data)
    log, records = reading.open_log(tmp_path / "t-0"), LatestRecords(memory)
    base = int(file.stem)
    for _ in range(2):
        assert answered(records, log, [b"k39"]) == {b"k39": (39, bytes(50))}
        for key in (b"k0", b"k%d" % (base - 1), b"k%d" % base, b"none"):
            with pytest.raises(CorruptError, match="crc"):
                records.find(log, key)
    live = live_offsets(records, log)
    assert live == [at for at in range(40) if not base <= at < base + 5]


def test_memory_is_shared_and_the_log_asked_least_recently_is_forgotten(tmp_path: Path) -> None:
    logs = []
    for name in ("a-0", "b-0", "c-0"):
        appended(writing.open_log(tmp_path / name), [(b"k", name.encode())])
        logs.append(reading.open_log(tmp_path / name))
    records = LatestRecords(2 * live_keys.FIRST_BYTES)
    for log in (logs[0], logs[1], logs[0], logs[2]):
        assert records.find(log, b"k") is not None
    held = [records._known[log][reading.COMMITTED].suffix is not None for log in logs]
    assert held == [True, False, True]


def test_a_key_is_found_by_what_its_record_is_like(written: tuple[Log, Rows]) -> None:
    log, rows = written
    records = LatestRecords(1 << 20)
    assert records.find_key(log, lambda columns: int(columns.row_of(1234))) == rows[1234][0]
    assert records.find_key(log, lambda columns: -1) is None


def test_an_empty_partition_has_no_keys(tmp_path: Path) -> None:
    writing.open_log(tmp_path / "t-0")
    log, records = reading.open_log(tmp_path / "t-0"), LatestRecords(1 << 20)
    assert answered(records, log, [b"", b"k"]) == {}
    assert live_offsets(records, log) == []


@given(st.lists(st.one_of(st.none(), st.binary(max_size=3)), max_size=20), st.binary(max_size=3))
def test_both_forms_of_the_kernel_find_the_last_row(keys: list[Value], key: bytes) -> None:
    data, spans = bytearray(b"x"), np.zeros((len(keys), 6), dtype=np.int32)
    for row, each in enumerate(keys):
        spans[row, :2] = len(data), -1 if each is None else len(each)
        data += each or b""
    truth = max((row for row, each in enumerate(keys) if each == key), default=-1)
    for kernel in (in_use("keys"), uncompiled("keys")):
        assert kernel.last_row(bytes(data), spans, key) == truth
        outside = spans.copy()
        outside[:, 0] = len(data)
        assert kernel.last_row(bytes(data), outside, b"z" * 4) == -1


def test_threads_ask_while_the_log_grows(tmp_path: Path) -> None:
    writer = writing.open_log(tmp_path / "t-0", writing.config(segment_bytes=4000))
    appended(writer, [(b"%d" % (at % 7), b"v") for at in range(70)])
    log, records = reading.open_log(tmp_path / "t-0"), LatestRecords(40 * SLOT_BYTES)

    def ask(key: bytes) -> None:
        last = 62 + int(key)
        for _ in range(60):
            (offset, _), *_ = answered(records, log, [key]).values()
            assert offset >= last
            assert offset % 7 == int(key)
            last = offset
            assert int(key) != 3 or len(records.live(log)) == 7

    with running(*[partial(ask, b"%d" % key) for key in range(5)]):
        for at in range(70, 700, 7):
            rows: Rows = [(b"%d" % (each % 7), b"v") for each in range(at, at + 7)]
            appended(writer, rows, together=7)
