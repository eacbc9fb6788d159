"""Tests of verbs on log directories held by one of our own mounts: the mount does the work, and the
output is the same as without a mount."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkafs.mount.session.mount_table import Mounted
from kafkafs.storage.clock import SetClock
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_manager import LogManager
from tests.mounted.mounting import Mount, mounted
from tests.waiting import PATIENCE_SECONDS
from tests.warm_python import run_kafkafs

pytestmark = pytest.mark.mounted

ROOT = Path(__file__).parents[2]
THEN = 1_700_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topic `old` with three segments that retention would delete; `keys`, compacted; and `t`."""
    clock = SetClock(THEN)
    with LogManager(str(tmp_path / "data"), clock=clock) as engine:
        engine.create_topic("old", configs={"segment.ms": "1000", "retention.ms": "3600000"})
        compacted = {"cleanup.policy": "compact", "segment.ms": "1000"}
        engine.create_topic("keys", configs=compacted)
        engine.create_topic("all", configs=compacted)
        engine.create_topic("t", 2)
        for _ in range(3):
            for topic in ("old", "keys", "all"):
                records = RecordColumns.from_values([b"v"], [b"k"], timestamp=clock.now_ms())
                engine.writer(topic, 0).append_records(records)
            clock.advance(60_000)
    return tmp_path / "data"


@pytest.fixture
def copy(data: Path, tmp_path: Path) -> Path:
    """A copy of the directory that is not mounted."""
    return shutil.copytree(data, tmp_path / "copy")


@pytest.fixture
def mount(data: Path, copy: Path, tmp_path: Path) -> Iterator[Mount]:
    settings = {"log.cleaner.enable": "false", "log.initial.task.delay.ms": "3600000"}
    with mounted([data], tmp_path, "writable", settings) as mount:
        yield mount


COMMANDS = [
    "expire DATA nowhere",
    "expire --json DATA t/7",
    "expire DATA old t",
    "expire DATA",
    "expire --all --json DATA all keys",
    "compact --all --json DATA all/0",
    "compact DATA keys t/0",
    "compact --force DATA",
    "topic create DATA t",
    "topic create DATA a/b",
    "topic create -p 2 --topic-id 3Db5QLSqSZieL3rJBUUegA --config flush.ms=7 DATA new",
    "topic config --add-config retention.ms=5 --delete-config flush.ms DATA new",
    "topic config --json --all --add-config retention.ms=6 DATA new",
    "topic config --add-config retention.ms=x DATA new",
    "topic config --add-config retention.ms=5 DATA nowhere",
    "topic delete DATA nowhere new",
    "topic delete DATA new",
]


@pytest.mark.slow
@pytest.mark.usefixtures("mount")
def test_outputs_and_exit_codes_are_those_without_a_mount(data: Path, copy: Path) -> None:
    for command in COMMANDS:
        through, alone = (
            run_kafkafs(*(where if word == "DATA" else word for word in command.split()))
            for where in (data, copy)
        )
        assert through.stdout == alone.stdout, command
        assert through.stderr == alone.stderr.replace(bytes(copy), bytes(data)), command
        assert through.returncode == alone.returncode, command
    listed = [run_kafkafs("topic", "list", where).stdout for where in (data, copy)]
    assert listed[0] == listed[1]


def test_settings_of_a_run_are_for_who_holds_the_directories(data: Path, mount: Mount) -> None:
    done = run_kafkafs("expire", "-c", "retention.ms=5", data)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"is mounted with its own configs; run the command without -c" in done.stderr
    assert (mount.point / "old/0/offset/0").exists()


def test_a_mount_of_other_directories_is_not_asked(data: Path, copy: Path, mount: Mount) -> None:
    with LogManager(str(copy)):
        done = run_kafkafs("expire", copy)
    assert done.returncode == 1
    assert b"has it locked" in done.stderr
    done = run_kafkafs("expire", f"{data},{copy}")
    assert done.returncode == 1
    assert b"one is a copy" in done.stderr  # before anything is locked
    assert (mount.point / "old/0/offset/0").exists()


def test_a_mount_that_only_reads_holds_nothing(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "reading").mkdir()
    with mounted([copy], tmp_path / "reading"), LogManager(str(copy)):
        done = run_kafkafs("expire", copy)
    assert done.returncode == 1
    assert b"has it locked" in done.stderr


@pytest.mark.slow
def test_a_mount_that_does_not_answer_is_passed_by(data: Path, mount: Mount) -> None:
    mount.daemon.send_signal(signal.SIGSTOP)
    try:
        done = run_kafkafs("expire", data)
    finally:
        mount.daemon.send_signal(signal.SIGCONT)
    assert done.returncode == 1
    assert b"has it locked" in done.stderr


def test_a_mount_of_somebody_else_is_not_believed() -> None:
    ours = Mounted("/mnt", "fuse.kafkafs", "/data", os.geteuid())
    assert ours.is_ours
    assert not Mounted("/mnt", "fuse.kafkafs", "/data", os.geteuid() + 1).is_ours
    assert not Mounted("/mnt", "fuse.kafkafs", "/data").is_ours
    assert not Mounted("/mnt", "fuse.sshfs", "/data", os.geteuid()).is_ours


def test_what_writes_waits_for_a_mount_that_is_ending(data: Path, mount: Mount) -> None:
    mount.daemon.send_signal(signal.SIGSTOP)
    try:
        # umount(8) would first request attributes from the daemon.
        assert ctypes.CDLL(None).umount2(bytes(mount.point), 2) == 0
        command = [sys.executable, "-m", "kafkafs", "topic", "delete", str(data), "t"]
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            pid = mount.daemon.pid
            expected = (
                f"kafkafs: {data}: waiting for process {pid}, a mount that is shutting down\n"
            )
            assert process.stderr.readline() == expected
            mount.daemon.send_signal(signal.SIGCONT)
            assert process.communicate(timeout=60) == ("t: deleted\n", "")
            assert process.returncode == 0
        assert mount.daemon.wait(PATIENCE_SECONDS) == 0
    finally:
        mount.daemon.send_signal(signal.SIGCONT)


def test_more_keys_than_a_mount_takes_at_once(data: Path, mount: Mount, tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("".join(f"key-{number:08}\n" for number in range(100_000)))
    refused = run_kafkafs("erase", "--key-file", str(keys), str(data), "keys")
    assert (refused.returncode, refused.stdout, refused.stderr.decode()) == (
        1,
        b"",
        f"kafkafs: {mount.point}: a mount takes requests of at most 1048576 bytes; divide this one,"
        " or unmount first\n",
    )
    with keys.open("w") as file:
        file.write("".join(f"key-{number:08}\n" for number in range(10_000)) + "k\n")
    done = run_kafkafs("erase", "--json", "--key-file", str(keys), str(data), "keys")
    assert done.returncode == 0, done.stderr
    assert not os.listdir(mount.point / "keys/0/offset")
