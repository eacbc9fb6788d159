"""The promises of SEMANTICS.md about how writable mounts end, one by one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafkafs.mount.session import mountpoint
from kafkafs.mount.session.mount_table import Mounted
from kafkafs.storage.format.records.columns import Damage
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.mounted.conversing import ask, conversation
from tests.mounted.mounting import Mount, clear, errno_of, start, waiting_for
from tests.mounted.promises import promise
from tests.mounted.test_semantics_control import SLOWLY, slow_to_clean
from tests.waiting import PATIENCE_SECONDS, wait_until
from tests.warm_python import run_kafkafs

CLEAN = ".kafka_cleanshutdown"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with the empty topic `t`."""
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic(
            "t", configs={"segment.bytes": "1048576", "file.delete.delay.ms": "100"}
        )
    return tmp_path / "data"


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[Path], Mount]]:
    """`begin(data)` is a writable mount at `mnt`, which the test ends."""
    point = tmp_path / "mnt"
    point.mkdir()
    begun: list[Mount] = []

    def begin(data: Path, **settings: str) -> Mount:
        mount = start([data], point, "writable", tmp_path / "log", settings)
        begun.append(mount)
        wait_until(lambda: errno_of(os.stat, point / ".kafkafs/control") == 0)
        return mount

    yield begin
    for mount in begun:
        clear(mount)


def by_umount(mount: Mount) -> None:
    subprocess.run(["umount", mount.point], check=True)


def by_kafkafs_umount(mount: Mount) -> None:
    mountpoint.unmount(str(mount.point))


def by_sigint(mount: Mount) -> None:
    mount.daemon.send_signal(signal.SIGINT)


def by_sigterm(mount: Mount) -> None:
    mount.daemon.send_signal(signal.SIGTERM)


def by_sighup(mount: Mount) -> None:
    mount.daemon.send_signal(signal.SIGHUP)


@promise(
    "When a writable mount ends, by `umount`, `kafkafs umount`, SIGINT, SIGTERM or SIGHUP, what"
    " was appended is on disk, everything is checkpointed, and the log directories are marked as"
    " cleanly closed."
)
@pytest.mark.parametrize("end", [by_umount, by_kafkafs_umount, by_sigint, by_sigterm, by_sighup])
def test_ending(data: Path, begin: Callable[[Path], Mount], end: Callable[[Mount], None]) -> None:
    mount = begin(data)
    assert not (data / CLEAN).exists()
    with (mount.point / "t/0/append").open("wb") as file:
        file.write(b"".join(b"line %d\n" % number for number in range(1000)))
    os.unlink(mount.point / "t/0/offset/9")
    end(mount)
    assert mount.daemon.wait(PATIENCE_SECONDS) == 0
    assert (data / CLEAN).exists()
    checkpoints = {
        name: (data / f"{name}-checkpoint").read_text().splitlines()[2:]
        for name in ("recovery-point-offset", "replication-offset", "log-start-offset")
    }
    assert checkpoints == {
        "recovery-point-offset": ["t 0 1000"],
        "replication-offset": ["t 0 1000"],
        "log-start-offset": ["t 0 10"],
    }
    view = Engine(str(data)).log("t", 0).view()
    assert (view.start_offset, view.end_offset) == (10, 1000)


_CLOSES_SLOWLY = """
import os, sys, time
from kafkafs.mount.options import parse_options
from kafkafs.mount.session.session import mount
from kafkafs.storage.log_manager import LogManager

class Engine(LogManager):
    def close(self):
        print("closing", flush=True)
        while not os.path.exists(sys.argv[3]):
            time.sleep(0.01)
        super().close()

mount([sys.argv[1]], sys.argv[2], parse_options("writable"), foreground=True, make_engine=Engine)
"""


@promise(
    "SIGINT, SIGTERM and SIGHUP that arrive while a mount is ending change nothing: the log"
    " directories are closed cleanly, and the daemon exits with status 0."
)
@pytest.mark.parametrize("end", [by_umount, by_sigint, by_sigterm])
def test_ending_is_not_interrupted(
    data: Path, tmp_path: Path, end: Callable[[Mount], None]
) -> None:
    with waiting_for(tmp_path / "told", _CLOSES_SLOWLY, data) as mount:
        wait_until(lambda: errno_of(os.stat, mount.point / ".kafkafs/control") == 0)
        end(mount)
        wait_until(lambda: "closing\n" in mount.log.read_text())
        by_sigterm(mount)
        by_sigint(mount)
        by_sighup(mount)
        wait_until(lambda: mount.log.read_text().count(": unmounted already, closing the") == 3)
        (tmp_path / "told").touch()
        assert mount.daemon.wait(PATIENCE_SECONDS) == 0
    assert (data / CLEAN).exists()


_MOUNTS_SLOWLY = """
import os, sys, time
from kafkafs.mount.options import parse_options
from kafkafs.mount.session import session
from kafkafs.storage.log_manager import LogManager

def init(*arguments, init=session._init):
    print("mounting", flush=True)
    while not os.path.exists(sys.argv[3]):
        time.sleep(0.01)
    init(*arguments)

session._init = init
options = parse_options("writable")
session.mount([sys.argv[1]], sys.argv[2], options, foreground=True, make_engine=LogManager)
"""


def test_one_that_is_told_to_end_while_it_mounts_ends(data: Path, tmp_path: Path) -> None:
    """Any thread of the engine may get the signal, which then has its usual effect."""
    with waiting_for(tmp_path / "told", _MOUNTS_SLOWLY, data) as mount:
        wait_until(lambda: "mounting\n" in mount.log.read_text())
        by_sigterm(mount)
        (tmp_path / "told").touch()
        assert mount.daemon.wait(PATIENCE_SECONDS) in (0, -signal.SIGTERM)


@promise(
    "`kafkafs umount` returns when the daemon has unlocked the log directories; if that takes"
    " longer than a minute, it says so."
)
def test_umount_waits(data: Path, begin: Callable[[Path], Mount]) -> None:
    for turn in range(2):
        mount = begin(data)
        (mount.point / "t/0/append").write_bytes(os.urandom(500_000).hex().encode() + b"\n")
        assert run_kafkafs("umount", mount.point).returncode == 0
        with LogManager(str(data)) as engine:  # at once
            assert engine.writer("t", 0).end_offset == turn + 1
        assert mount.daemon.wait(PATIENCE_SECONDS) == 0


def test_umount_that_waits_too_long(
    data: Path, begin: Callable[[Path], Mount], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests the promise's second half, with less than a minute."""
    mount = begin(data)
    end = mountpoint._end

    def stop_and_end(mounted: Mounted, *lazily: str) -> None:
        mount.daemon.send_signal(signal.SIGSTOP)
        end(mounted, *lazily)

    monkeypatch.setattr(mountpoint, "_ENDING_SECONDS", 0.3)
    monkeypatch.setattr(mountpoint, "_end", stop_and_end)
    try:
        expected = f"unmounted, but process {mount.daemon.pid} is still writing to {data}"
        with pytest.raises(mountpoint.MountError, match=expected):
            mountpoint.unmount(str(mount.point))
    finally:
        mount.daemon.send_signal(signal.SIGCONT)
    assert mount.daemon.wait(PATIENCE_SECONDS) == 0


@promise("What runs in the background when a mount ends is aborted, and leaves the logs intact.")
def test_ending_in_the_midst(tmp_path: Path, begin: Callable[..., Mount]) -> None:
    data = slow_to_clean(tmp_path / "data")
    before = set(latest(data))
    mount = begin(data, **SLOWLY)
    # There is no daemon to close it.
    with suppress(OSError), conversation(mount.point) as handle:
        handle.write("compact keys force\nexpire\n")
        wait_until(lambda: list((data / "keys-0").glob("*.cleaned")))
        mount.daemon.send_signal(signal.SIGTERM)
        assert mount.daemon.wait(PATIENCE_SECONDS) == 0
    assert (data / CLEAN).exists()
    verify(data)
    assert set(latest(data)) == before


def latest(data: Path) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yields the last value of each key."""
    found: dict[bytes | None, bytes | None] = {}
    for record in records(data, "keys"):
        found[record[1]] = record[2]
    return iter(found.items())


def records(data: Path, topic: str) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Yields the offset, key and value of each record."""
    for part in Engine(str(data)).log(topic, 0).view().scan():
        assert not isinstance(part, Damage), part
        for row, offset in enumerate(part.offsets.tolist()):
            yield offset, part.key(row), part.value(row)


def verify(data: Path) -> None:
    done = run_kafkafs("verify", data)
    assert done.returncode == 0, done.stdout + done.stderr


@dataclass(slots=True)
class Told:
    """What writers and deleters were told: the lines that each writer has written and synced, and
    the log start offset that was synced."""

    written: dict[int, int] = field(default_factory=dict)
    synced: dict[int, int] = field(default_factory=dict)
    start: int = 0
    synced_start: int = 0

    def write(self, point: Path, writer: int) -> None:
        """Appends the writer's next lines until the mount ends."""
        number = self.written.setdefault(writer, 0)
        with suppress(OSError), open(point / "t/0/append", "wb", buffering=0) as file:
            while True:
                lines = b"".join(b"%d %d\n" % (writer, number + more) for more in range(20))
                number += 20
                self.written[writer] = number  # or less: the kill may come first
                file.write(lines)
                os.fsync(file.fileno())
                self.synced[writer] = number

    def wait_for(self, lines: int) -> None:
        """Waits until the writers have synced so many more lines."""
        before = sum(self.synced.values())
        wait_until(lambda: sum(list(self.synced.values())) >= before + lines)

    def delete(self, point: Path) -> None:
        """Deletes records until the mount ends."""
        with suppress(OSError):
            directory = os.open(point / "t/0/offset", os.O_RDONLY)
            try:
                while True:
                    last = int(os.readlink(point / "t/0/offset/last"))
                    if last - self.start > 200:
                        self.start += 50
                        os.unlink(point / f"t/0/offset/{self.start - 1}")
                        os.fsync(directory)
                        self.synced_start = self.start
            finally:
                os.close(directory)


@promise(
    "After a kill of the daemon at any moment, the log directories recover: every append that was"
    " synced is there, the log contains a prefix of what was appended, in order and each record"
    " once, and what was deleted and synced stays deleted."
)
@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_kills(data: Path, begin: Callable[[Path], Mount], rounds: int) -> None:
    told = Told()
    chance = random.Random(rounds)
    seen: dict[int, int] = {}
    for _ in range(rounds):
        mount = begin(data)  # over what the killed one left
        work = [threading.Thread(target=told.write, args=(mount.point, each)) for each in range(3)]
        work.append(threading.Thread(target=told.delete, args=(mount.point,)))
        for thread in work:
            thread.start()
        told.wait_for(chance.randrange(20, 2000))
        mount.daemon.kill()
        mount.daemon.wait()
        for thread in work:
            thread.join()
        seen = told_in_order(data, told, begin)
        # Writers continue after what is present.
        told.written = dict(seen)
        told.synced = dict(seen)
    mount = begin(data)
    assert (mount.point / "t/0/values").read_bytes().count(b"\n") > 0
    mountpoint.unmount(str(mount.point))
    mount.daemon.wait()
    assert (data / CLEAN).exists()
    verify(data)


def told_in_order(data: Path, told: Told, begin: Callable[[Path], Mount]) -> dict[int, int]:
    """Remounts the directory and unmounts it; returns the number of lines that it has, or had
    before their deletion, of each writer."""
    mountpoint.unmount(str(begin(data).point))
    view = Engine(str(data)).log("t", 0).view()
    assert told.synced_start <= view.start_offset <= told.start
    told.start = told.synced_start = view.start_offset
    following: dict[int, int] = {}
    for _, _, value in records(data, "t"):
        assert value is not None
        writer, number = map(int, value.split())
        # The first one present may follow deleted ones; each later one follows its predecessor.
        assert following.get(writer, number) == number
        following[writer] = number + 1
    for writer, synced in told.synced.items():
        assert synced <= following.get(writer, synced) <= told.written[writer]
    return following


# Seconds in which all frequent tasks run a few times.
_IDLE = 30.0


@pytest.mark.slow
@pytest.mark.timeout(600)  # so that it starts early
@promise("An idle writable mount of 1,000 partitions needs less than a hundredth of a processor.")
def test_idle(tmp_path: Path, begin: Callable[..., Mount]) -> None:
    data = tmp_path / "data"
    with LogManager(str(data)) as engine:
        engine.create_topic("a", 500)
        engine.create_topic("b", 500, {"cleanup.policy": "compact"})
        for writer in engine.writers().values():
            writer.append_records(RecordColumns.from_values([b"value"], [b"key"]))
    mount = begin(data, **{"log.initial.task.delay.ms": "1000"})
    soon_ms = (time.time() + 5) * 1000
    first = [row for row in ask(mount.point, "status") if (row["nextRun"] or soon_ms) < soon_ms]
    due = {row["task"] for row in first}
    wait_until(lambda: all(row["runs"] for row in ask(mount.point, "status") if row["task"] in due))
    # What a busy machine delays is over after one or two of them; what recurs is in each.
    shares: list[float] = []
    while not shares or (shares[-1] >= 0.01 and len(shares) < 3):
        shares.append(_share_of_a_processor(mount))
    assert shares[-1] < 0.01, shares


def _share_of_a_processor(mount: Mount) -> float:
    """Returns which share of a processor the daemon needs for a while."""
    before, began = mount.cpu_seconds(), time.monotonic()
    time.sleep(_IDLE)
    return (mount.cpu_seconds() - before) / (time.monotonic() - began)
