"""Rows 10 to 12: appending, against Kafka's load generator, plain `write()`, and one thread.

All data is in memory before the clock starts, and an append is done once its bytes are in the page
cache; only row 12 waits for the disk.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Barrier
from typing import TypeVar

import numpy as np

from kafkafs.storage.format.records.encoder import BatchPlan, encode
from kafkafs.storage.format.records.record_columns import Field, Headers, RecordColumns
from kafkafs.storage.format.records.validate import AppendOrigin, ValidationRules
from kafkafs.storage.io.durable import Calls, replaced
from kafkafs.storage.log.append.appending import AppendRequest, LogAppendInfo
from kafkafs.storage.log.append.group_commit import GroupCommit
from kafkafs.storage.log.append.preparing import encoded
from kafkafs.storage.log.append.writer import LogWriter
from kafkafs.storage.log_manager import LogManager
from tests.bench.broker import with_topic
from tests.bench.data import EPOCH_MS, TOPIC, VALUE_BYTES, cache, values
from tests.bench.machine import last_core
from tests.bench.plan import Plan
from tests.bench.race import Call, Outcomes, race, versus
from tests.bench.trial import all_compilers
from tests.broker.jvm import installation, java
from tests.broker.kafka import Broker

#: Records of one append, about a megabyte.
_RECORDS_OF_AN_APPEND = 10_000
_THREADS = 16
_DURABLE_APPENDS = 400
#: The extra seconds that an fsync of a slow disk takes.
_SLOW_FSYNC = 0.002
#: A producer's defaults, except for what the row measures.
_SETTINGS = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
_RATE = re.compile(r"([\d.]+) records/sec")
_PEER = "kafka-producer-perf-test"
#: For the rows that are informational.
_ANSWERED = ", each answered before the next"
_Piece = TypeVar("_Piece")
#: Appends pieces and yields the result of each.
_AppendEach = Callable[[LogWriter, Sequence[_Piece]], Iterable[object]]


def from_memory(plan: Plan) -> Outcomes:
    """Row 10: columns of records to one partition; for information, also with each append answered
    before the next one starts."""
    pieces = _columns(plan.appended)
    written = [bytes(encode(piece, BatchPlan()).data) for piece in pieces]
    with broker() as kafka:
        seconds = race(
            {
                "ours": Call(lambda: _append(pieces, LogWriter.append_records_each)),
                "answered": Call(lambda: _append(pieces, _answered(LogWriter.append_records))),
                "write": Call(lambda: _write(written)),
                _PEER: Call(lambda: _perf_test(kafka, plan.appended)),
            },
            plan.repetitions,
        )
    work = f"append {VALUE_BYTES}-byte records from memory"
    for ours, peer, name, target in (
        ("ours", _PEER, _PEER, 5.0),
        ("ours", "write", "plain write()", 0.5),
        ("answered", "write", "plain write()", None),
    ):
        yield versus(
            10, work if ours == "ours" else f"{work}{_ANSWERED}",
            (seconds[ours], seconds[peer]), name, target,
            amount=plan.appended / 1e6, unit="M rec/s",
        )  # fmt: skip


def prebuilt(plan: Plan) -> Outcomes:
    """Row 11: batches of 16 KiB as a producer sends them, validated and assigned offsets in place;
    also with each append answered before the next one starts."""
    encoded = [encode(piece, BatchPlan(leader_epoch=-1)) for piece in _columns(plan.appended)]
    pieces = [_sent(bytes(each.data), each.table.rows[:, 0].tolist()) for each in encoded]
    seconds = race(
        {
            "ours": Call(lambda: _append(_copies(pieces), LogWriter.append_each)),
            "answered": Call(lambda: _append(_copies(pieces), _answered(LogWriter.append))),
            "write": Call(lambda: _write(_copies(pieces))),
        },
        plan.repetitions,
    )
    work = "append pre-built batches"
    for ours, name, target in (("ours", work, 0.8), ("answered", f"{work}{_ANSWERED}", None)):
        yield versus(
            11, name, (seconds[ours], seconds["write"]), "plain write()", target,
            amount=sum(map(len, pieces)) / 1e6, unit="MB/s",
        )  # fmt: skip


class _SlowDisk(Calls):
    """A disk whose fsync is slow, as one without a cache."""

    def fsync(self, fd: int) -> None:
        time.sleep(_SLOW_FSYNC)
        super().fsync(fd)


def durable(plan: Plan) -> Outcomes:
    """Row 12: appends of one record, each on disk before the next one of its thread. Where an fsync
    is as fast as here, most of the waiting is for Python's lock and for being woken on another
    processor, which a virtual machine must get back first. Hence three informational variants: all
    threads on one processor; just a write and an fsync for all waiting threads, without an engine;
    and a slower fsync."""
    seconds = race(
        {
            "ours": Call(lambda: _durable(_THREADS)),
            "one": Call(lambda: _durable(1)),
            "ours, on one": Call(lambda: _durable_on_one_processor(_THREADS)),
            "one, on one": Call(lambda: _durable_on_one_processor(1)),
            "bare": Call(lambda: _bare_durable(_THREADS)),
            "one, bare": Call(lambda: _bare_durable(1)),
            "ours, slow": Call(lambda: _durable_slowly(_THREADS)),
            "one, slow": Call(lambda: _durable_slowly(1)),
        },
        plan.repetitions,
    )
    work = f"{_THREADS} threads, each append durable"
    slow = f"{work}, an fsync being {_SLOW_FSYNC * 1e3:g} ms slower"
    on_one = f"{work}, all on one processor"
    bare = f"{_THREADS} threads that share write() and fsync()"
    for each, ours, one, target in (
        (work, "ours", "one", 8),
        (on_one, "ours, on one", "one, on one", None),
        (bare, "bare", "one, bare", None),
        (slow, "ours, slow", "one, slow", None),
    ):
        yield versus(
            12, each, (seconds[ours], seconds[one]), "one thread", target,
            amount=1, unit="appends/s",
        )  # fmt: skip


def _durable_on_one_processor(threads: int) -> float:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {last_core()})  # inherited by the threads it starts
    try:
        return _durable(threads)
    finally:
        os.sched_setaffinity(0, allowed)


def _durable_slowly(threads: int) -> float:
    with replaced(_SlowDisk()):
        return _durable(threads)


def _columns(records: int) -> list[RecordColumns]:
    """Returns records in chunks of one append; the values are contiguous in one buffer."""
    data = values(records)
    starts = np.arange(records, dtype=np.int64) * VALUE_BYTES
    everything = RecordColumns(
        EPOCH_MS + np.arange(records, dtype=np.int64) // 10,
        Field.nulls(),
        Field(data, starts, np.full(records, VALUE_BYTES, dtype=np.int64)),
        Headers.none(),
    )
    edges = [*range(0, records, _RECORDS_OF_AN_APPEND), records]
    return [everything.slice(low, high) for low, high in itertools.pairwise(edges)]


def _sent(data: bytes, positions: Sequence[int]) -> bytes:
    """Returns the batches with base offset 0, as a producer sends them."""
    sent = bytearray(data)
    for position in positions:
        sent[position : position + 8] = bytes(8)
    return bytes(sent)


@contextmanager
def _writer() -> Iterator[LogWriter]:
    with (
        tempfile.TemporaryDirectory(prefix="append-", dir=_scratch()) as directory,
        LogManager(directory) as engine,
    ):
        engine.create_topic(TOPIC, 1, _SETTINGS)
        yield engine.writer(TOPIC, 0)


def _append(pieces: Sequence[_Piece], append: _AppendEach[_Piece]) -> float:
    """Appends all pieces to a new partition. Returns the seconds."""
    with _writer() as writer:
        started = time.perf_counter()
        for _ in append(writer, pieces):
            pass
        return time.perf_counter() - started


def _answered(append: Callable[[LogWriter, _Piece], object]) -> _AppendEach[_Piece]:
    """Appends one piece after another; each is answered before the next one is prepared."""
    return lambda writer, pieces: (append(writer, piece) for piece in pieces)


def _copies(pieces: Sequence[bytes]) -> Sequence[bytearray]:
    """Returns writable copies, as if just received from a network."""
    return list(map(bytearray, pieces))


def _write(pieces: Sequence[bytes | bytearray]) -> float:
    """Writes all pieces to a new file. Returns the seconds."""
    with tempfile.TemporaryDirectory(prefix="append-", dir=_scratch()) as directory:
        file = os.open(f"{directory}/plain", os.O_CREAT | os.O_WRONLY)
        try:
            started = time.perf_counter()
            for piece in pieces:
                if os.write(file, piece) != len(piece):
                    raise OSError("a short write")
            return time.perf_counter() - started
        finally:
            os.close(file)


def _durable(threads: int) -> float:
    """Returns the seconds per durable append, with `threads` threads sharing the work."""
    record = RecordColumns.from_values([bytes(VALUE_BYTES)], timestamp=EPOCH_MS)
    with _writer() as writer:
        taken = _shared(lambda: writer.append_records(record, durable=True), threads)
        if writer.recovery_point != writer.end_offset:
            raise AssertionError("an append was answered before it was durable")
        return taken


def _bare_durable(threads: int) -> float:
    """Does the same without an engine: an append only writes and syncs its bytes together with
    those of all waiting threads."""
    record = RecordColumns.from_values([bytes(VALUE_BYTES)], timestamp=EPOCH_MS)
    admitted = encoded(record, BatchPlan(), ValidationRules(), EPOCH_MS)
    with tempfile.TemporaryFile(prefix="append-", dir=_scratch(), buffering=0) as file:

        def append(requests: Sequence[AppendRequest]) -> None:
            file.write(b"".join(each.admitted.data for each in requests))
            os.fsync(file.fileno())
            for each in requests:
                each.answer(LogAppendInfo(0, 0))

        group = GroupCommit(append, waits=True)
        return _shared(lambda: group.submit(AppendRequest(admitted, AppendOrigin.CLIENT)), threads)


def _shared(work: Callable[[], object], threads: int) -> float:
    """Returns the seconds per call of `work`, with `threads` threads sharing the calls."""
    barrier, each = Barrier(threads + 1), _DURABLE_APPENDS // min(threads, 2)

    def share() -> None:
        barrier.wait()
        for _ in range(each):
            work()

    with ThreadPoolExecutor(threads) as pool:
        done = [pool.submit(share) for _ in range(threads)]
        barrier.wait()
        started = time.perf_counter()
        for one in done:
            one.result()
        return (time.perf_counter() - started) / (threads * each)


def _scratch() -> Path:
    """Returns a directory on the file system that holds the other logs."""
    cache().mkdir(parents=True, exist_ok=True)
    return cache()


def broker() -> AbstractContextManager[Broker]:
    """Runs a broker with the topic, segments as large as ours, and a JVM with all compilers."""
    return with_topic(TOPIC, jvm_options=_server())


def _server() -> tuple[str, ...]:
    """Returns the options of a JVM that serves, or loads a server."""
    return (*all_compilers(), "-Xmx1g")


def _perf_test(broker: Broker, records: int) -> float:
    """Returns the seconds that the load generator takes for the records, after as many for
    warm-up."""
    arguments = [
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", TOPIC, "--record-size", str(VALUE_BYTES), "--throughput", "-1"),
        *("--num-records", str(2 * records), "--warmup-records", str(records)),
        *("--bootstrap-server", broker.bootstrap),
    ]
    command = java(installation(), *_server(), *arguments, heap="512m", log_level="error")
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return records / float(_RATE.findall(done.stdout)[-1])
