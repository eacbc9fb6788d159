"""Runs many readers and writers, retention and the cleaner together, on one writable mount.

    python -m tests.mounted.stress DIR SECONDS

Each writer appends lines "<writer> <number>" to one of the partitions of `log` and to a compacted
topic, while retention deletes the oldest segments of `log` and the cleaner runs. Readers read
streams, records, segments, listings, keys and states at random. It prints what goes wrong: an EIO,
a record that is lost, duplicated or out of order, a call that does not return, growing memory or
descriptors. The resources of a mount depend on what its users do at the moment, so all threads rest
after a third of the time and at the end, and the two are compared.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path

from kafkafs.mount.fuse.watch import SWEEP_SECONDS
from kafkafs.storage.log_manager import LogManager
from tests.mounted.conversing import ask
from tests.mounted.mounting import Mount, mounted
from tests.waiting import PATIENCE_SECONDS

READERS, WRITERS, PARTITIONS = 64, 8, 4
# Keys of the compacted topic for each writer.
KEYS = 50
# The errors that a reader may get while the oldest records are deleted.
_GONE = (errno.ENOENT, errno.ESTALE, errno.EINTR)
# The time after which a call counts as hanging.
_HANGS_SECONDS = 60.0
# The time until an idle daemon has returned its memory; and how much more memory, in kB, it may use
# at the end than at the first rest: caches fill, it keeps less than 16 MiB of free memory, and
# fragmentation grows up to some limit.
_REST_SECONDS = SWEEP_SECONDS + 1
_MAY_GROW = 48_000
# The number of names that a reader lists.
_LISTED = 5000
_SETTINGS = {
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.cleaner.backoff.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "kafkafs.cache.bytes": "4194304",  # full after some seconds
}


def make(directory: Path) -> None:
    """Creates the topics: `log`, which keeps a few megabytes, and `keys`."""
    small = {"segment.bytes": "1048576", "file.delete.delay.ms": "1000"}
    with LogManager(str(directory)) as engine:
        engine.create_topic("log", PARTITIONS, {**small, "retention.bytes": "4194304"})
        engine.create_topic(
            "keys",
            PARTITIONS,
            {**small, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"},
        )


@dataclass(slots=True)
class Run:
    """The state of a run. `busy`: since when each thread is in a call; `written`: the lines that
    each writer has appended; `problems`: what went wrong; `works`: cleared while all threads
    rest."""

    point: Path
    ends_at: float
    problems: list[str] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    written: list[int] = field(default_factory=lambda: [0] * WRITERS)
    busy: dict[str, tuple[str, float]] = field(default_factory=dict)
    works: threading.Event = field(default_factory=threading.Event)

    @property
    def goes_on(self) -> bool:
        """Whether to continue; checked between calls. Waits while the threads rest."""
        self.works.wait()
        return time.monotonic() < self.ends_at and not self.problems

    def thread(self, work: Callable[[Run, int], None], number: int) -> threading.Thread:
        """Returns a thread for `work(self, number)`; an exception in it is a problem."""

        def done() -> None:
            try:
                work(self, number)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                self.problems.append(f"{work.__name__} {number}: {error!r}")

        return threading.Thread(target=done, name=f"{work.__name__} {number}", daemon=True)

    @contextmanager
    def call(self, what: str, *allowed: int) -> Iterator[None]:
        """Counts a call and measures its time; the errors in `allowed` are no problem."""
        name = threading.current_thread().name
        self.busy[name] = what, time.monotonic()
        self.calls[what] += 1
        try:
            yield
        except OSError as error:
            if error.errno not in allowed:
                self.problems.append(f"{name}: {what}: {error}")
        finally:
            del self.busy[name]


def writers_of(partition: int) -> list[int]:
    return [writer for writer in range(WRITERS) if writer % PARTITIONS == partition]


# -- writers --------------------------------------------------------------------------------------


def write(run: Run, writer: int) -> None:
    """Appends numbered lines, to `log` through one handle and to `keys` through new ones."""
    log = run.point / f"log/{writer % PARTITIONS}/append"
    keys = run.point / f"keys/{writer % PARTITIONS}/append.jsonl"
    filling = "x" * 200
    with log.open("wb", buffering=0) as file:
        number = 0
        while run.goes_on:
            lines = range(number, number + 100)
            with run.call("append"):
                file.write("".join(f"{writer} {each} {filling}\n" for each in lines).encode())
                number += 100
                run.written[writer] = number
            records = "".join(
                f'{{"key": "{writer}-{each % KEYS}", "value": "{each}"}}\n' for each in lines
            )
            with run.call("append.jsonl"), keys.open("wb", buffering=0) as other:
                other.write(records.encode())
            time.sleep(0.005)


# -- readers --------------------------------------------------------------------------------------


def check_lines(run: Run, data: bytes, where: str) -> None:
    """Checks that each writer's numbers are consecutive."""
    last: dict[bytes, int] = {}
    for line in data.splitlines():
        writer, number, _ = line.split(b" ", 2)
        if int(number) != last.get(writer, int(number) - 1) + 1:
            run.problems.append(f"{where}: {line[:30]!r} follows {last[writer]}")
            return
        last[writer] = int(number)


def read_values(run: Run, partition: Path) -> None:
    with run.call("values"):
        data = (partition / "values").read_bytes()
        check_lines(run, data, str(partition / "values"))


def read_record(run: Run, partition: Path) -> None:
    with run.call("record", *_GONE):
        last = int(os.readlink(partition / "offset/last"))
        offset = random.randint(max(0, last - 20_000), last)
        (partition / f"offset/{offset}").read_bytes()


def read_first(run: Run, partition: Path) -> None:
    with run.call("first", *_GONE):
        (partition / "offset/first").read_bytes()


def read_segment(run: Run, partition: Path) -> None:
    with run.call("segment", *_GONE):
        name = random.choice(os.listdir(partition / "segments"))
        (partition / "segments" / name).read_bytes()


def list_offsets(run: Run, partition: Path) -> None:
    with run.call("listing", *_GONE):
        # only a part: a slow reader may never reach the end of a growing log
        with os.scandir(partition / "offset") as entries:
            names = [entry.name for entry in islice(entries, _LISTED)]
        numbers = [int(name) for name in names if name.isdigit()]
        # Names deleted meanwhile may be missing.
        if any(before >= after for before, after in pairwise(numbers)):
            run.problems.append(f"{partition}/offset: unordered or duplicate names")


def read_status(run: Run, partition: Path) -> None:
    with run.call("status", *_GONE):
        (partition / "status.json").read_bytes()
        (run.point / ".kafkafs/metrics").read_bytes()
        (run.point / ".kafkafs/log").read_bytes()


def read_key(run: Run, partition: Path) -> None:
    """Checks that the value of a key is never older than one seen before."""
    writer = random.choice(writers_of(int(partition.name)))
    key = random.randrange(KEYS)
    path = run.point / f"keys/{partition.name}/key/{writer}-{key}"
    with run.call("key", *_GONE):
        before = int(path.read_bytes())
        after = int(path.read_bytes())
        if after < before or after % KEYS != key:
            run.problems.append(f"{path}: {after} came after {before}")


def read_keys(run: Run, partition: Path) -> None:
    with run.call("keys"):
        (run.point / f"keys/{partition.name}/records.jsonl").read_bytes()


_READS: list[Callable[[Run, Path], None]] = [
    *(read_values, read_record, read_record, read_first, read_segment),
    *(list_offsets, read_status, read_key, read_key, read_keys),
]


def read(run: Run, reader: int) -> None:
    while run.goes_on:
        random.choice(_READS)(run, run.point / f"log/{reader % PARTITIONS}")
        time.sleep(random.random() * 0.2)


def follow(run: Run, partition: int) -> None:
    """Checks that each record comes once, in order, without a gap where nothing was deleted."""
    last: dict[bytes, int] = {}
    begun = b""
    fd = os.open(run.point / f"log/{partition}/follow", os.O_RDONLY | os.O_NONBLOCK)
    try:
        while run.goes_on:
            data = b""
            with run.call("follow", errno.EAGAIN, errno.EINTR):
                data = os.read(fd, 1 << 20)
            *lines, begun = (begun + data).split(b"\n")
            for line in lines:
                writer, number, _ = line.split(b" ", 2)
                if int(number) <= last.get(writer, -1):
                    run.problems.append(f"follow: {line[:30]!r} came after {last[writer]}")
                last[writer] = int(number)
            if not data:
                time.sleep(0.02)
    finally:
        os.close(fd)


# -- the whole ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Size:
    """The daemon's memory in kB, and its open descriptors."""

    memory: int
    descriptors: int

    @classmethod
    def of(cls, mount: Mount) -> Size:
        return cls(mount.memory_kb("VmRSS"), len(os.listdir(f"/proc/{mount.daemon.pid}/fd")))


def stress(directory: Path, seconds: float, told: Callable[[str], object] = print) -> list[str]:
    """Runs the test in the new directory `directory`; returns the problems."""
    directory.mkdir()
    make(directory / "data")
    with mounted([directory / "data"], directory, "writable,maintain", _SETTINGS) as mount:
        mount.expects_warnings = True
        run = Run(mount.point, time.monotonic() + seconds)
        threads = [
            *(run.thread(write, each) for each in range(WRITERS)),
            *(run.thread(follow, each) for each in range(PARTITIONS)),
            *(run.thread(read, each) for each in range(READERS)),
        ]
        run.works.set()
        for thread in threads:
            thread.start()
        sizes, rested = _watch(run, mount, told)
        for thread in threads:
            thread.join(_HANGS_SECONDS)
        hanging = [thread.name for thread in threads if thread.is_alive()]
        run.problems += [f"{name} hangs in {run.busy.get(name)}" for name in hanging]
        if not run.problems:
            _check_all(run, mount)
            run.problems += _kept_at_rest(rested, mount, told)
        run.problems += _growth(sizes)
        told(f"{dict(run.calls)}, {sum(run.written)} lines in log")
    return run.problems


def _watch(run: Run, mount: Mount, told: Callable[[str], object]) -> tuple[list[Size], Size]:
    """Watches the daemon until the end; returns its sizes, ten of them, and that at rest after
    three."""
    sizes: list[Size] = []
    rested = Size.of(mount)
    step = (run.ends_at - time.monotonic()) / 10
    while run.goes_on:
        time.sleep(min(step, max(run.ends_at - time.monotonic(), 0)))
        sizes.append(Size.of(mount))
        told(f"{sizes[-1]}, {sum(run.calls.values())} calls, {sum(run.written)} lines in log")
        for name, (what, since) in list(run.busy.items()):
            if time.monotonic() - since > _HANGS_SECONDS:
                run.problems.append(f"{name} hangs in {what}")
        if len(sizes) == 3:
            rested = _rest(run, mount, told)
    return sizes, rested


def _rest(run: Run, mount: Mount, told: Callable[[str], object]) -> Size:
    """Lets all threads rest, without counting the time; returns the daemon's size then."""
    began = time.monotonic()
    run.works.clear()
    try:
        while run.busy and time.monotonic() - began < _HANGS_SECONDS:
            time.sleep(0.1)
        return _rested(mount, told)
    finally:
        run.ends_at += time.monotonic() - began
        run.works.set()


def _rested(mount: Mount, told: Callable[[str], object]) -> Size:
    """Returns the daemon's size after a time without requests."""
    time.sleep(_REST_SECONDS)
    size = Size.of(mount)
    told(f"{size} at rest")
    return size


def _kept_at_rest(before: Size, mount: Mount, told: Callable[[str], object]) -> list[str]:
    """Returns what the daemon keeps after a rest. A daemon on a busy machine sweeps late, so it may
    rest for a minute."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while (problems := _kept(before, _rested(mount, told))) and time.monotonic() < give_up:
        pass
    return problems


def _kept(before: Size, after: Size) -> list[str]:
    """Returns the resources that a daemon at rest has and did not have before."""
    problems = []
    if after.memory > before.memory + _MAY_GROW:
        problems.append(f"memory at rest grew from {before.memory} kB to {after.memory} kB")
    if after.descriptors > before.descriptors + 50:
        problems.append(f"descriptors at rest: {before.descriptors}, then {after.descriptors}")
    return problems


def _growth(sizes: list[Size]) -> list[str]:
    """Returns what grew from the second third of the time to the last."""
    third = len(sizes) // 3
    if not third:
        return []
    middle, last = sizes[third : 2 * third], sizes[-third:]
    problems = []
    most = max(size.memory for size in middle)
    if min(size.memory for size in last) > most * 1.25 + 20_000:
        problems.append(f"memory grew: {[size.memory for size in sizes]} kB")
    most = max(size.descriptors for size in middle)
    if min(size.descriptors for size in last) > most * 1.25 + 50:
        problems.append(f"descriptors grew: {[size.descriptors for size in sizes]}")
    return problems


def _check_all(run: Run, mount: Mount) -> None:
    """Checks that every line written is present, or below the log start offset, and that each key
    has its last value."""
    for task in ("retention", "cleaner"):
        ask(mount.point, f"run {task}")
    runs = {task["task"]: task for task in ask(mount.point, "status")}
    for task in ("retention", "cleaner"):
        if runs[task]["failures"] or not runs[task]["runs"]:
            run.problems.append(f"{task}: {runs[task]}")
    for partition in range(PARTITIONS):
        data = (mount.point / f"log/{partition}/values").read_bytes()
        check_lines(run, data, f"log/{partition}/values")
        last = dict(line.split(b" ", 2)[:2] for line in data.splitlines())
        first = int(os.readlink(mount.point / f"log/{partition}/offset/first"))
        writers = writers_of(partition)
        there = first + data.count(b"\n")
        if there != sum(run.written[each] for each in writers):
            run.problems.append(f"log/{partition}: {there} records, not as many as written")
        for writer in writers:
            if int(last.get(b"%d" % writer, -1)) != run.written[writer] - 1:
                run.problems.append(f"writer {writer}: its last line is missing")
            for key in range(KEYS):
                expected = run.written[writer] - KEYS + key
                path = mount.point / f"keys/{partition}/key/{writer}-{key}"
                if int(path.read_bytes()) != expected:
                    run.problems.append(f"{path}: {path.read_bytes()!r}, not {expected}")


def main(arguments: list[str]) -> int:
    directory = Path(tempfile.mkdtemp(dir=arguments[0])) / "stress"
    try:
        problems = stress(directory, float(arguments[1]), lambda text: print(text, flush=True))
    finally:
        shutil.rmtree(directory.parent, ignore_errors=True)
    print("\n".join(problems) or "no problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
