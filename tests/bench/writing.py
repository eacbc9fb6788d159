"""Rows 19, 20 and 22: writing through a mount."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kafkafs.cli.verbs.append import whole_lines
from kafkafs.mount.node import File
from kafkafs.mount.tree import Tree
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.lines.json_input import parse_json
from kafkafs.storage.lines.line_appender import LineAppender
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.bench import appending, mounts
from tests.bench.data import EPOCH_MS, TOPIC, VALUE_BYTES, cache, made, plain_log, values
from tests.bench.plan import Plan
from tests.bench.race import Call, Command, Outcomes, need, race, turns, versus

_WRITTEN = "written"
_LINES = "lines.jsonl"
#: Row 20: the lines that each writer appends, and the pause in between, in s.
_WRITERS = 8
_LINES_AT_ONCE = 100
_PAUSE = 0.05
#: Row 22: values written in one repetition, and the keys they are distributed over in turn.
_VALUES = 500
_KEYS = 50


def append_json(plan: Plan) -> Outcomes:
    """Row 19: writes a file of JSON lines to a new partition each time: lines of about 150
    bytes, and the longer ones of the log that other rows read, a tenth of whose bytes are
    escaped quotes."""
    need("kcat")
    count = plan.appended // 2
    short = made(f"lines-short-{count}", lambda directory: _make_short_lines(directory, count))
    escaped = made(f"lines-{count}", lambda directory: _make_lines(directory, count))
    yield from _append_lines(short / _LINES, count, plan, (0.5, 3.0))
    yield from _append_lines(escaped / _LINES, count, plan, (None, None))


def _append_lines(
    lines: Path, count: int, plan: Plan, targets: tuple[float | None, float | None]
) -> Outcomes:
    with tempfile.TemporaryDirectory(prefix="append-", dir=cache()) as place:
        ours, engine = Path(place, "ours"), Path(place, "engine")
        for log_dir in (ours, engine):
            _make_topic(log_dir, turns(plan.repetitions))
        with (
            LogManager(str(engine)) as by_engine,
            mounts.kafkafs(ours, "--rw") as mounted,
            appending.broker() as kafka,
        ):
            kcat = ["kcat", "-P", "-b", kafka.bootstrap, "-t", TOPIC, "-p", "0", "-l", str(lines)]
            seconds = race(
                {
                    "ours": Call(_piped(lines, mounted.path / _WRITTEN, count)),
                    "engine": Call(_appended(lines, by_engine)),
                    "kcat": Command(kcat),
                },
                plan.repetitions,
            )
    work = f"cat {lines.stat().st_size // count}-byte JSON lines >> append.jsonl"
    for peer, target in zip(("engine", "kcat"), targets, strict=True):
        name = {"engine": "the engine's append", "kcat": "kcat -P of the lines"}[peer]
        yield versus(
            19, work, (seconds["ours"], seconds[peer]), name, target,
            amount=count / 1e6, unit="M lines/s",
        )  # fmt: skip


def _make_short_lines(directory: Path, count: int) -> None:
    """Writes lines as in `records.jsonl`, with keys of 8 bytes and values of 20."""
    with (directory / _LINES).open("w", encoding="ascii") as file:
        for number in range(count):
            file.write(
                f'{{"key":"k{number % 10**7:07d}","value":"order {number:07d} shipped",'
                f'"topic":"orders","partition":0,"offset":{number},"timestamp":{EPOCH_MS + number},'
                '"timestampType":"CreateTime","headers":[]}\n'
            )


def _make_lines(directory: Path, count: int) -> None:
    """Writes `records.jsonl` of the log that other rows read."""
    stream = Tree(Engine(str(plain_log(count)))).resolve(f"{TOPIC}/0/records.jsonl")
    assert isinstance(stream, File)
    handle = stream.open()
    with (directory / _LINES).open("wb") as file:
        while data := handle.read(file.tell(), 1 << 20):
            file.write(data)


def _make_topic(log_dir: Path, partitions: int) -> None:
    with LogManager(str(log_dir)) as engine:
        engine.create_topic(_WRITTEN, partitions)


def _piped(lines: Path, topic: Path, count: int) -> Callable[[], float]:
    partitions = itertools.count()

    def work() -> float:
        partition = topic / str(next(partitions))
        command = f"cat '{lines}' >> '{partition}/append.jsonl'"
        taken = Command(["bash", "-c", command]).measure()
        status = json.loads((partition / "status.json").read_bytes())
        assert status["logEndOffset"] == count
        return taken

    return work


def _appended(lines: Path, engine: LogManager) -> Callable[[], float]:
    """Does what `kafkafs append --format jsonl` does with a file."""
    partitions = itertools.count()

    def work() -> float:
        writer = engine.writer(_WRITTEN, next(partitions))
        now = engine.clock.now_ms
        appender = LineAppender(parse_json, lambda r: writer.append_records(r.stamped(now())))
        started = time.perf_counter()
        with lines.open("rb") as file:
            for data in whole_lines(file, 1):
                appender.append(data)
        return time.perf_counter() - started

    return work


def read_beside_writers(plan: Plan) -> Outcomes:
    """Row 20: reads one partition to its end, alone and while others are appended to."""
    count = plan.appended
    with tempfile.TemporaryDirectory(prefix="append-", dir=cache()) as place:
        log_dir = Path(place, "logs")
        shutil.copytree(plain_log(count), log_dir)
        _make_topic(log_dir, _WRITERS)
        with mounts.kafkafs(log_dir, "--rw") as mounted:
            cat = Command(["cat", str(mounted.path / TOPIC / "0" / "values")])
            writers = _Writers([mounted.path / _WRITTEN / str(each) for each in range(_WRITERS)])
            seconds = race({"ours": Call(writers.beside(cat)), "idle": cat}, plan.repetitions)
    rate = _WRITERS * _LINES_AT_ONCE / _PAUSE
    yield versus(
        20, f"cat values while {_WRITERS} writers append", (seconds["ours"], seconds["idle"]),
        "no writers", 0.7, amount=count * (VALUE_BYTES + 1) / 1e9, unit="GB/s",
        note=f"they append at most {rate:,.0f} records per second in total",
    )  # fmt: skip


class _Writers:
    """Threads that each append to their own partition while something is measured."""

    def __init__(self, partitions: Sequence[Path]) -> None:
        data = values(_LINES_AT_ONCE)
        self._partitions = partitions
        self._lines = b"".join(
            data[at : at + VALUE_BYTES] + b"\n" for at in range(0, len(data), VALUE_BYTES)
        )

    def beside(self, command: Command) -> Callable[[], float]:
        def work() -> float:
            with self._writing():
                return command.measure()

        return work

    @contextmanager
    def _writing(self) -> Iterator[None]:
        ended = threading.Event()
        threads = [
            threading.Thread(target=self._append, args=(each, ended)) for each in self._partitions
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join()

    def _append(self, partition: Path, ended: threading.Event) -> None:
        with (partition / "append").open("ab", buffering=0) as file:
            while not ended.wait(_PAUSE):
                file.write(self._lines)


def key_values(plan: Plan) -> Outcomes:
    """Row 22: `echo v > key/K`, without starting a shell for each."""
    with tempfile.TemporaryDirectory(prefix="append-", dir=cache()) as place:
        log_dir, files = Path(place, "logs"), Path(place, "files")
        files.mkdir()
        names = [f"key-{number}" for number in range(_KEYS)]
        with LogManager(str(log_dir)) as engine:
            engine.create_topic(_WRITTEN, 1, {"cleanup.policy": "compact"})
            keys = [name.encode() for name in names]
            engine.writer(_WRITTEN, 0).append_records(RecordColumns.from_values(keys, keys))
        for name in names:
            (files / name).write_bytes(b"v")
        with mounts.kafkafs(log_dir, "--rw") as ours, mounts.pass_through(files) as theirs:
            seconds = race(
                {
                    "ours": Call(_echo(ours.path / _WRITTEN / "0" / "key", names)),
                    "theirs": Call(_echo(theirs.path, names)),
                },
                plan.repetitions,
            )
    yield versus(
        22, "echo v > key/K", (seconds["ours"], seconds["theirs"]), "pyfuse3 pass-through", 0.5,
        amount=_VALUES, unit="values/s",
    )  # fmt: skip


def _echo(directory: Path, names: Sequence[str]) -> Callable[[], float]:
    """Makes the calls of a shell, which duplicates the descriptor that it has opened."""
    paths = [str(directory / name) for name in names]

    def work() -> float:
        started = time.perf_counter()
        for number in range(_VALUES):
            opened = os.open(paths[number % len(paths)], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            file = os.dup(opened)
            os.close(opened)
            os.write(file, b"value %d\n" % number)
            os.close(file)
        return time.perf_counter() - started

    return work
