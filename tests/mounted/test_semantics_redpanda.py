"""The promises of SEMANTICS.md about data directories of Redpanda."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.building import build_batch
from tests.mounted.conftest import Mounting
from tests.mounted.mounting import errno_of
from tests.mounted.promises import promise
from tests.redpanda import ARCHIVAL_METADATA, RAFT_CONFIGURATION, RedpandaLog
from tests.waiting import wait_until


def batch(*values: bytes) -> bytes:
    return build_batch([SimpleRecord(5, None, value) for value in values])


def log_of(data: Path, partition: str = "0_12", topic: str = "t", base: int = 0) -> RedpandaLog:
    (data / "redpanda" / "controller" / "0_0").mkdir(parents=True, exist_ok=True)
    log = RedpandaLog(data / "kafka" / topic / partition, base)
    log.add_other(RAFT_CONFIGURATION)
    log.add(batch(b"one", b"two"))
    log.add_other(ARCHIVAL_METADATA)
    log.add(batch(b"three"))
    return log


@promise(
    "A data directory of Redpanda is shown as the log directory of a broker: with the topics of its"
    " namespace `kafka`, and their records at the offsets that clients of Kafka get."
)
@promise(
    "`segments` contains Kafka's files: `.log` with the batches of records of one of Redpanda's"
    " segments, its indexes, and `leader-epoch-checkpoint`."
)
@promise("Records, segments, partitions and topics that Redpanda adds appear within two seconds.")
def test_a_data_directory(tmp_path: Path, mount: Mounting) -> None:
    log = log_of(tmp_path / "data")
    point = mount(tmp_path / "data").point
    assert sorted(path.name for path in point.iterdir()) == [".kafkafs", "t"]
    partition = point / "t" / "0"
    assert (partition / "values").read_bytes() == b"one\ntwo\nthree\n"
    assert [(partition / "offset" / str(number)).read_bytes() for number in range(3)] == [
        b"one",
        b"two",
        b"three",
    ]
    assert errno_of((partition / "offset" / "3").read_bytes) == errno.ENOENT
    segments = partition / "segments"
    stem = f"{0:020}"
    names = [f"{stem}.index", f"{stem}.log", f"{stem}.timeindex", "leader-epoch-checkpoint"]
    assert sorted(path.name for path in segments.iterdir()) == names
    assert (segments / f"{stem}.log").read_bytes() == bytes(log.kafka)
    log.add(batch(b"four"))
    wait_until(lambda: (partition / "values").read_bytes() == b"one\ntwo\nthree\nfour\n")
    log.roll(2)
    log.add(batch(b"five"))
    wait_until((partition / "offset" / "4").exists)
    assert (segments / f"{4:020}.log").exists()
    log_of(tmp_path / "data", "1_13")
    log_of(tmp_path / "data", topic="u")
    wait_until((point / "t" / "1" / "values").exists)
    wait_until((point / "u" / "0" / "values").exists)


@promise(
    "A partition whose offsets in Kafka are not known is EIO, unless"
    " `kafkafs.redpanda.offsets=shifted` was given."
)
def test_offsets_that_are_not_known(tmp_path: Path, mount: Mounting) -> None:
    log_of(tmp_path / "data", base=20)
    mounted = mount(tmp_path / "data")
    mounted.expects_warnings = True
    values = mounted.point / "t" / "0" / "values"
    assert errno_of(values.read_bytes) == errno.EIO
    shifted = mount(tmp_path / "data", settings={"kafkafs.redpanda.offsets": "shifted"}).point
    assert (shifted / "t" / "0" / "offset" / "20").read_bytes() == b"one"


@promise("A mount with `--rw` is refused.")
def test_a_writable_mount(tmp_path: Path) -> None:
    log_of(tmp_path / "data")
    (tmp_path / "point").mkdir()
    places = [str(tmp_path / name) for name in ("data", "point")]
    command = [sys.executable, "-m", "kafkafs", "mount", "--rw", *places]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert "a data directory of Redpanda, which can only be read" in done.stderr
