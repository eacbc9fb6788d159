"""Rows 10 to 12: appending, against Kafka's own load generator, plain `write()`, and one thread.

Everything is in memory before the clock starts, and all that is asked for afterwards is that the
bytes are in the page cache; only row 12 waits for the disk.
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
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from typing import TypeVar

import numpy as np

from kafkafs.storage.format.records.encoder import BatchPlan, encode
from kafkafs.storage.format.records.origin import AppendOrigin
from kafkafs.storage.format.records.record_columns import Field, Headers, RecordColumns
from kafkafs.storage.format.records.validate import ValidationRules
from kafkafs.storage.io.durable import Calls, replaced
from kafkafs.storage.log.append.appending import AppendRequest, LogAppendInfo
from kafkafs.storage.log.append.group_commit import GroupCommit
from kafkafs.storage.log.append.preparing import encoded
from kafkafs.storage.log.append.writer import LogWriter
from kafkafs.storage.log_manager import LogManager
from tests.bench.data import EPOCH_MS, TOPIC, VALUE_BYTES, cache, values
from tests.bench.machine import last_core
from tests.bench.plan import Plan
from tests.bench.race import Call, Outcomes, race, versus
from tests.broker.driver import Driver
from tests.broker.kafka import Broker, installation, java

#: Records of one append, about a megabyte.
_RECORDS_OF_AN_APPEND = 10_000
_THREADS = 16
_DURABLE_APPENDS = 400
#: Seconds that an fsync of a slow disk takes longer.
_SLOW_FSYNC = 0.002
#: What a producer's defaults are, apart from what the row is about.
_SETTINGS = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
_RATE = re.compile(r"([\d.]+) records/sec")
_PEER = "kafka-producer-perf-test"
#: Of rows that are for information.
_ANSWERED = ", each answered before the next"
_Piece = TypeVar("_Piece")
#: Appends pieces, and tells what became of each.
_AppendEach = Callable[[LogWriter, Sequence[_Piece]], Iterable[object]]
_SERVER = ("-XX:TieredStopAtLevel=4", "-Xmx1g")


def from_memory(plan: Plan) -> Outcomes:
    """Row 10: columns of records, one partition; and, for information, each append being answered
    before the next is made."""
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
    """Row 11: batches of 16 KiB as a producer sends them, checked and numbered where they are; and
    each append being answered before the next."""
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
    """A disk that takes its time to make something durable, as one without a cache of its own."""

    def fsync(self, fd: int) -> None:
        time.sleep(_SLOW_FSYNC)
        super().fsync(fd)


def durable(plan: Plan) -> Outcomes:
    """Row 12: appends of one record, each on the disk before the next of its thread. Where an fsync
    is as quick as here, Python's lock is most of what threads wait for, and to be woken on another
    processor, which a virtual machine's must get back first. So three times more, for information:
    all threads on one processor; without an engine, just a write and an fsync for all who wait; and
    with an fsync that is not as quick."""
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
    os.sched_setaffinity(0, {last_core()})  # threads that it starts have it from this one
    try:
        return _durable(threads)
    finally:
        os.sched_setaffinity(0, allowed)


def _durable_slowly(threads: int) -> float:
    with replaced(_SlowDisk()):
        return _durable(threads)


def _columns(records: int) -> list[RecordColumns]:
    """Records in appends' worth, their values one after the other in one buffer."""
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
    """Batches with the base offset that a producer gives them all."""
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
    """Append them all to a new partition. Seconds."""
    with _writer() as writer:
        started = time.perf_counter()
        for _ in append(writer, pieces):
            pass
        return time.perf_counter() - started


def _answered(append: Callable[[LogWriter, _Piece], object]) -> _AppendEach[_Piece]:
    """Append piece after piece, one being answered before the next is made ready."""
    return lambda writer, pieces: (append(writer, piece) for piece in pieces)


def _copies(pieces: Sequence[bytes]) -> Sequence[bytearray]:
    """To be changed, as what has just come over a network."""
    return list(map(bytearray, pieces))


def _write(pieces: Sequence[bytes | bytearray]) -> float:
    """Write them all to a new file. Seconds."""
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
    """Seconds for one durable append, so many threads doing their share of them."""
    record = RecordColumns.from_values([bytes(VALUE_BYTES)], timestamp=EPOCH_MS)
    with _writer() as writer:
        taken = _shared(lambda: writer.append_records(record, durable=True), threads)
        if writer.recovery_point != writer.end_offset:
            raise AssertionError("an append was answered before it was durable")
        return taken


def _bare_durable(threads: int) -> float:
    """The same where an append is no more than as many bytes, written and synced together with
    those of all who wait."""
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
    """Seconds for each time that it is done, so many threads doing their share."""
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
    """On the file system that the other logs are on."""
    cache().mkdir(parents=True, exist_ok=True)
    return cache()


@contextmanager
def broker() -> Iterator[Broker]:
    """A broker with the topic, its segments as large as ours, its JVM with all compilers."""
    with tempfile.TemporaryDirectory(prefix="append-", dir=_scratch()) as directory:
        kafka = Broker(Path(directory), jvm_options=_SERVER)
        kafka.start()
        try:
            client = Driver(kafka.bootstrap, Path(directory) / "driver.log")
            client.create_topic(TOPIC, 1)
            client.close()
            yield kafka
        finally:
            kafka.close()


def _perf_test(broker: Broker, records: int) -> float:
    """Seconds that the load generator takes for the records, after as many that warm it up."""
    arguments = [
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", TOPIC, "--record-size", str(VALUE_BYTES), "--throughput", "-1"),
        *("--num-records", str(2 * records), "--warmup-records", str(records)),
        *("--bootstrap-server", broker.bootstrap),
    ]
    command = java(installation(), *_SERVER, *arguments, heap="512m", log_level="error")
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return records / float(_RATE.findall(done.stdout)[-1])
