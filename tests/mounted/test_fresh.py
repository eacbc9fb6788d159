"""A writable mount shows no stale name, attribute or page, whichever process had read it before."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_manager import LogManager
from tests.mounted.conftest import Mounting
from tests.mounted.mounting import errno_of
from tests.waiting import wait_until

_END = 400
_EACH = 50

# Reads everything repeatedly until its input ends. `start` is read before and after: names below
# the first value must not be seen, and names above the second must be.
_HAMMER = """
import json, os, select, sys
partition, values = sys.argv[1], json.loads(sys.argv[2])
looks = 0

def start():
    return json.load(open(f"{partition}/status.json"))["logStartOffset"]

def read(name):
    try:
        found = os.stat(f"{partition}/{name}").st_size
        with open(f"{partition}/{name}", "rb") as file:
            data = file.read()
        assert found == len(data), (name, found, len(data))
        return data
    except FileNotFoundError:
        return None
    except OSError as error:
        assert error.errno == 116, (name, error)  # ESTALE: it went between two calls
        return None

while not select.select([sys.stdin], [], [], 0)[0]:
    before = start()
    seen = {offset: read(f"offset/{offset}") for offset in range(max(before - 3, 0), before + 12)}
    listed = [int(name) for name in os.listdir(f"{partition}/offset") if name.isdigit()]
    segments = {int(n[:20]) for n in os.listdir(f"{partition}/segments") if n.endswith(".log")}
    found = {base for base in segments if read(f"segments/{base:020}.log") is not None}
    after = start()
    for offset, data in seen.items():
        if offset < before or offset >= len(values):
            assert data is None, ("seen though gone", offset, before)
        elif offset >= after:
            assert data == values[offset].encode(), ("not seen", offset, after)
    assert min(listed, default=after) >= before, (listed[:1], before)
    assert min(listed, default=before) <= after, (listed[:1], after)
    looks += 1
print(looks)
"""


def value(offset: int) -> str:
    return f"value {offset} " + "v" * (offset % 37)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("t", configs={"retention.ms": "-1"})
        writer = engine.writer("t", 0)
        for base in range(0, _END, _EACH):
            if base:
                writer.roll()
            values = [value(offset).encode() for offset in range(base, base + _EACH)]
            writer.append_records(RecordColumns.from_values(values))
    return tmp_path / "data"


@contextmanager
def hammering(partition: Path, count: int = 2) -> Iterator[None]:
    """Runs reading processes during the block; each must have read, and seen nothing wrong."""
    values = json.dumps([value(offset) for offset in range(_END)])
    command = [sys.executable, "-c", _HAMMER, str(partition), values]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(count)
    ]
    try:
        yield
    finally:
        answers = [process.communicate(b"end", timeout=60)[0] for process in processes]
    assert all(process.returncode == 0 for process in processes)
    assert all(int(answer) > 0 for answer in answers)


def test_while_records_and_segments_are_removed(data: Path, mount: Mounting) -> None:
    partition = mount(data, "writable").point / "t/0"
    with hammering(partition):
        for offset in range(0, _END - _EACH, 2):
            os.unlink(partition / f"offset/{offset}")
            if offset % 98 == 0:
                base = (offset // _EACH) * _EACH
                segment = partition / f"segments/{base:020}.log"
                if segment.exists():
                    os.unlink(segment)
                    assert errno_of(os.stat, segment) == errno.ENOENT


def test_retention_and_what_is_brought_back(data: Path, mount: Mounting) -> None:
    partition = mount(data, "writable").point / "t/0"
    control = partition.parent.parent / ".kafkafs/control"
    first, segment = partition / "offset/0", partition / f"segments/{0:020}.log"
    held = first.open("rb", buffering=0)
    assert first.read_bytes() == value(0).encode()
    log = segment.read_bytes()
    # by size: everything but the active segment
    changes = {"topic": "t", "changes": {"retention.bytes": "1"}}
    control.write_bytes(f"configure-topic {json.dumps(changes)}\nexpire t/0\n".encode())
    wait_until(lambda: not first.exists())
    listed = [int(name) for name in os.listdir(partition / "offset") if name.isdigit()]
    assert min(listed) == _END - _EACH
    wait_until(lambda: not segment.exists())
    control.write_bytes(b"undelete t/0\n")
    wait_until(first.exists)
    assert len(os.listdir(partition / "offset")) == _END + 2
    assert segment.read_bytes() == log
    assert first.read_bytes() == held.read() == value(0).encode()
    held.close()


def test_a_roll_and_a_cleaning(tmp_path: Path, mount: Mounting) -> None:
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.ms": "1"}
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("keyed", configs=settings)
        writer = engine.writer("keyed", 0)
        for number in range(6):
            key = b"k%d" % (number % 2)
            columns = RecordColumns.from_values([b"%d" % number], keys=[key], timestamp=number * 10)
            writer.append_records(columns)
    options = {"log.cleaner.enable": "false"}
    partition = mount(tmp_path / "data", "writable", options).point / "keyed/0"
    control = partition.parent.parent / ".kafkafs/control"
    log = partition / f"segments/{0:020}.log"
    before = log.read_bytes()
    held = [log.open("rb", buffering=0), (partition / "offset/0").open("rb", buffering=0)]
    stale = [partition / f"offset/{offset}" for offset in range(3)]
    assert all(path.exists() for path in stale)
    control.write_bytes(b"compact keyed force\n")
    wait_until(lambda: not stale[0].exists())
    assert [path.exists() for path in stale] == [False, False, False]
    assert errno_of(stale[0].open) == errno.ENOENT
    now = log.read_bytes()
    assert now != before
    assert log.stat().st_size == len(now)
    names = os.listdir(partition / "segments")
    assert min(name for name in names if name.endswith(".log")) == log.name
    assert held[0].read() == before
    assert held[1].read() == b"0"
    assert sorted(os.listdir(partition / "key")) == ["k0", "k1"]
    for file in held:
        file.close()
