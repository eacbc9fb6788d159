"""Tests of writing verbs that are ended by a signal."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.mounted.test_semantics_control import slow_to_clean
from tests.reading import read
from tests.waiting import PATIENCE_SECONDS, wait_until

CLEAN = ".kafka_cleanshutdown"
# Exit status after each signal: 130 as after Ctrl-C, or -N for a process killed by signal N.
ENDINGS = [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)]
_CLOSES_SLOWLY = """
import sys, time
from kafkafs.cli.support.opening import ending_in_order
with ending_in_order():
    try:
        print("open", flush=True)
        time.sleep(600)
    finally:
        print("closing", flush=True)
        sys.stdin.readline()
        print("closed", flush=True)
"""


def kinds(partition: Path) -> set[str]:
    return {path.suffix for path in partition.iterdir()}


def values(data: Path, topic: str) -> list[bytes | None]:
    return [record.value for record in read(Engine(str(data)).log(topic, 0).view())]


@pytest.mark.parametrize(("number", "code"), ENDINGS)
def test_an_append_that_is_ended_has_closed_the_directories(
    tmp_path: Path, programs: Path, environment: Mapping[str, str], number: int, code: int
) -> None:
    data = tmp_path / "data"
    with LogManager(str(data)) as engine:
        engine.create_topic("t")
    with subprocess.Popen(
        [programs / "kafkafs", "append", data, "t/0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environment),
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"a\nb\n")
        process.stdin.flush()
        wait_until(lambda: Engine(str(data)).log("t", 0).view().end_offset == 2)
        assert not (data / CLEAN).exists()
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == code
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert (data / CLEAN).exists()
    assert values(data, "t") == [b"a", b"b"]


@pytest.mark.parametrize(("number", "code"), ENDINGS[:2])
def test_a_compaction_that_is_ended_leaves_nothing_half_done(
    tmp_path: Path, programs: Path, environment: Mapping[str, str], number: int, code: int
) -> None:
    data = slow_to_clean(tmp_path / "data")
    end = Engine(str(data)).log("keys", 0).view().end_offset
    slowly = ["-c", "log.cleaner.io.max.bytes.per.second=80000000", "--force"]
    with subprocess.Popen(
        [programs / "kafkafs", "compact", data, *slowly],
        stderr=subprocess.PIPE,
        env=dict(environment),
    ) as process:
        wait_until(lambda: ".cleaned" in kinds(data / "keys-0"))
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == code
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert (data / CLEAN).exists()
    assert not kinds(data / "keys-0") & {".cleaned", ".swap"}
    assert Engine(str(data)).log("keys", 0).view().end_offset == end
    subprocess.run([programs / "kafkafs", "verify", data], env=dict(environment), check=True)


def test_closing_is_not_interrupted_by_another_signal() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _CLOSES_SLOWLY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"open\n"
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == b"closing\n"
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGHUP)
        assert process.stderr.readline() == b"kafkafs: closing the log directories\n"
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.stdout.read() == b"closed\n"
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGHUP
        assert set(process.stderr.readlines()) <= {b"kafkafs: closing the log directories\n"}


def test_what_nohup_ignores_stays_ignored(tmp_path: Path) -> None:
    with subprocess.Popen(
        ["nohup", sys.executable, "-c", _CLOSES_SLOWLY],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)  # Python would handle SIGHUP first, the lower number
        assert process.stdout.read() == b"closing\nclosed\n"
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGTERM


def test_outside_of_a_block_they_mean_what_they_did() -> None:
    script = """
import signal
from kafkafs.cli.support.opening import ending_in_order
with ending_in_order():
    pass
print(*(int(signal.getsignal(each)) for each in (signal.SIGTERM, signal.SIGHUP)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, timeout=PATIENCE_SECONDS
    )
    assert done.stdout == b"0 0\n"
