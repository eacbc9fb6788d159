"""The promises of SEMANTICS.md about control, metrics and the log, one by one."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kafkafs.storage.clock import SetClock
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_manager import LogManager
from tests.mounted.conftest import Mounting
from tests.mounted.conversing import Row, ask, conversation, logged
from tests.mounted.live import LiveLog
from tests.mounted.mounting import errno_of, sh
from tests.mounted.promises import promise
from tests.waiting import wait_until
from tests.warm_python import run_kafkafs

# A time long ago.
THEN = 1_700_000_000_000
# Keeps retention and the cleaner from running by themselves during a test.
QUIET: Mapping[str, str] = {
    "log.cleaner.enable": "false",
    "log.initial.task.delay.ms": "3600000",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topic `old` with three segments of one record each, which retention would delete; the
    compacted topic `keys`, with three segments of one key; and `t`."""
    clock = SetClock(THEN)
    with LogManager(str(tmp_path / "data"), clock=clock) as engine:
        engine.create_topic("old", configs={"segment.ms": "1000", "retention.ms": "3600000"})
        compacted = {"cleanup.policy": "compact", "segment.ms": "1000"}
        engine.create_topic("keys", configs=compacted)
        engine.create_topic("t", 2)
        for _ in range(3):
            for topic in ("old", "keys"):
                records = RecordColumns.from_values([b"v"], [b"k"], timestamp=clock.now_ms())
                engine.writer(topic, 0).append_records(records)
            clock.advance(60_000)
    return tmp_path / "data"


def metrics(point: Path) -> dict[str, dict[str, float]]:
    """Returns the values by name, and by their labels as text: "topic=a partition=0"."""
    found: dict[str, dict[str, float]] = {}
    text = (point / ".kafkafs/metrics").read_text()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = " ".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


@promise(
    "`.kafkafs/metrics` is text in the format of Prometheus: requests, errors, bytes, open files,"
    " caches and the partitions that were opened; on a writable mount also the partitions that it"
    " writes to, the cleaner and the background tasks; in both cases of at most 10,000 partitions."
)
def test_metrics(data: Path, mount: Mounting, live: LiveLog) -> None:
    point = mount(live.directory).point
    assert "kafkafs_log_end_offset" not in metrics(point)
    assert (point / "t/0/offset/3").read_bytes() == b"value 3"
    assert not (point / "t/0/offset/100").exists()
    with (point / "t/0/values").open():
        found = metrics(point)
        assert found["kafkafs_open_files"][""] == 1
    assert found["kafkafs_request_seconds_count"]["operation=lookup"] > 3
    assert found["kafkafs_request_seconds_sum"]["operation=lookup"] > 0
    assert found["kafkafs_request_errors_total"]["errno=ENOENT operation=lookup"] == 1
    assert found["kafkafs_read_bytes_total"][""] >= 7
    assert found["kafkafs_log_end_offset"] == {"partition=0 topic=t": 6}
    assert found["kafkafs_log_segments"] == {"partition=0 topic=t": 3}
    assert "kafkafs_task_runs_total" not in found
    point = mount(data, "writable", QUIET).point
    ask(point, "run retention")
    found = metrics(point)
    assert set(found["kafkafs_log_size_bytes"]) == {
        f"partition={number} topic={topic}"
        for topic, number in (("keys", 0), ("old", 0), ("t", 0), ("t", 1))
    }
    assert found["kafkafs_log_start_offset"]["partition=0 topic=old"] == 3
    assert found["kafkafs_log_dirty_ratio"] == {"partition=0 topic=keys": 1}
    assert found["kafkafs_task_runs_total"]["task=retention"] == 1
    assert found["kafkafs_task_paused"]["task=cleaner"] == 0
    assert found["kafkafs_uncleanable_partitions"][""] == 0
    assert found["kafkafs_written_bytes_total"][""] == len("run retention\n")


LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|WARNING|ERROR) [^\n]*")


@promise(
    "`.kafkafs/log` contains the last messages of the daemon, one per line with time and level,"
    " whatever the names in them contain; their number and size are bounded."
)
def test_log(data: Path, mount: Mounting) -> None:
    mounted = mount(data, "writable", QUIET)
    mounted.expects_errors = True  # a name that looks like an error
    point = mounted.point
    hostile = "a\n2030-01-01T00:00:00.000Z ERROR all is lost\x1b[2J\r"
    assert errno_of(os.mkdir, point / "t" / hostile) != 0
    assert errno_of(os.unlink, point / "keys/0/values") == errno.EPERM
    logged(point, "values cannot be removed")
    with conversation(point) as handle:
        for number in range(300):
            line = f"run {number:0200}\x1b\r \x00\n".encode()
            assert errno_of(os.write, handle.fd, line) == errno.EINVAL
            handle.read()
    text = (point / ".kafkafs/log").read_bytes().decode()
    assert text.endswith("\n")
    lines = text.splitlines()
    assert all(LINE.fullmatch(line) and line.isprintable() for line in lines), lines
    assert not any(line.startswith("2030") for line in lines)
    assert lines[-1].endswith(": needs one TASK")
    for _ in range(4):
        with conversation(point) as handle:
            for number in range(1000):
                assert errno_of(os.write, handle.fd, b"no %d\n" % number) == errno.EINVAL
                handle.read()
        assert len((point / ".kafkafs/log").read_bytes()) <= 256 << 10
        assert len((point / ".kafkafs/log").read_text().splitlines()) <= 2000


@promise("`tail -f` follows `.kafkafs/log`.")
def test_log_followed(data: Path, mount: Mounting) -> None:
    point = mount(data, "writable", QUIET).point
    ask(point, "pause cleaner")
    command = ["tail", "-n", "1", "-f", str(point / ".kafkafs/log")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as tail:
        try:
            assert tail.stdout is not None
            assert tail.stdout.readline().endswith("control: pause cleaner\n")
            for verb in ("resume cleaner", "run flush"):
                ask(point, verb)
                assert tail.stdout.readline().endswith(f"control: {verb}\n")
        finally:
            tail.kill()
        assert tail.stderr is not None
        assert tail.stderr.read() == ""


@promise(
    "On a writable mount, `.kafkafs/status.json` also reports the state of each background task,"
    " and what is no longer cleaned and why; a partition's `status.json` has the current high"
    " watermark, recovery point and time of the last flush."
)
def test_status(data: Path, mount: Mounting) -> None:
    log = data / "keys-0" / f"{0:020}.log"
    damaged = bytearray(log.read_bytes())
    damaged[-1] ^= 1
    log.write_bytes(damaged)
    mounted = mount(data, "writable", QUIET)
    mounted.expects_errors = True
    point = mounted.point

    def status(path: str = ".kafkafs/status.json") -> Row:
        found: Row = json.loads((point / path).read_text())
        return found

    assert (status()["writable"], status()["pid"]) == (True, mounted.daemon.pid)
    ask(point, "run cleaner")
    assert status()["tasks"] == ask(point, "status")
    (cleaner,) = [task for task in status()["tasks"] if task["task"] == "cleaner"]
    assert (cleaner["runs"], cleaner["paused"], cleaner["running"]) == (1, False, False)
    assert cleaner["lastRun"] <= time.time() * 1000
    why = "the directories were opened without maintain"
    tasks = {task["task"]: task for task in status()["tasks"]}
    for name in ("retention", "cleaner"):
        assert (tasks[name]["nextRun"], tasks[name]["notScheduled"]) == (None, why)
    assert tasks["recovery-points"]["nextRun"] > time.time() * 1000
    assert tasks["recovery-points"]["notScheduled"] is None
    (problem,) = status()["problems"]
    assert problem.startswith("keys-0: not cleaned until the log directory is reopened: ")
    before = status("t/0/status.json")["writer"]
    assert before["recoveryPoint"] == 0
    fd = os.open(point / "t/0/append", os.O_WRONLY)
    os.write(fd, b"one\ntwo\n")
    now = status("t/0/status.json")["writer"]
    assert (now["highWatermark"], now["recoveryPoint"]) == (2, 0)
    os.fsync(fd)
    os.close(fd)
    now = status("t/0/status.json")["writer"]
    assert (now["highWatermark"], now["recoveryPoint"]) == (2, 2)
    assert before["lastFlush"] <= now["lastFlush"] <= time.time() * 1000


@promise(
    "A writable mount has `.kafkafs/control`, with mode 0600: a line that is written is a verb,"
    " and reading the same handle returns the answer to what was written to it, in JSON lines, to"
    " its end."
)
def test_control(data: Path, mount: Mounting) -> None:
    assert not (mount(data).point / ".kafkafs/control").exists()
    point = mount(data, "writable", QUIET).point
    assert stat.S_IMODE((point / ".kafkafs/control").stat().st_mode) == 0o600
    script = (
        'exec 3<>control; echo "run retention" >&3; cat <&3; echo done; echo status >&3; cat <&3'
    )
    first, done, *rest = sh(script, point / ".kafkafs").splitlines()
    assert (json.loads(first)["task"], done) == ("retention", "done")
    assert [json.loads(line)["task"] for line in rest][:2] == ["retention", "cleaner"]
    with conversation(point) as one, conversation(point) as other:
        one.write("pause cleaner\nresume cleaner\nrun flush\n")
        other.write("pause deletion\n")
        assert [row.get("paused") for row in one.read()] == [True, False, None]
        assert one.read() == []
        assert other.read() == [{"task": "deletion", "paused": True}]


@promise(
    "The verbs are `help`, `status`, `run`, `pause` and `resume` with a task, `expire`, `compact`,"
    " `erase`, `purge`, `deleted`, `undelete`, `create-topic`, `delete-topic`, `configure-topic`"
    " and `append`; `help`, and reading `control` without having written, describe the arguments of"
    " each."
)
def test_verbs(data: Path, mount: Mounting) -> None:
    point = mount(data, "writable", QUIET).point
    rows = ask(point, "help")
    assert {row["verb"].split()[0] for row in rows} == {
        *("help", "status", "run", "pause", "resume", "expire", "compact", "erase", "purge"),
        *("deleted", "undelete"),
        *("create-topic", "delete-topic", "configure-topic", "append"),
    }
    assert all(set(row) == {"verb", "does"} for row in rows)
    text = (point / ".kafkafs/control").read_text()
    assert [json.loads(line) for line in text.splitlines()] == rows
    asked = '{"topic": "new", "partitions": 2, "settings": {"retention.ms": "5"}}'
    (made,) = ask(point, f"create-topic {asked}")
    assert (made["topic"], made["partitions"], len(made["topicId"])) == ("new", 2, 22)
    assert sorted(os.listdir(point / "new")) == ["0", "1", "config.properties"]
    (changed,) = ask(
        point,
        'configure-topic {"topic": "new", "changes": {"retention.ms": null, "flush.ms": "7"}}',
    )
    of_topic = {
        name: made["value"]
        for name, made in changed["settings"].items()
        if made["source"] != "default"
    }
    assert of_topic == {"flush.ms": "7"}
    assert "flush.ms=7" in (point / "new/config.properties").read_text()
    assert ask(point, "delete-topic new") == [{"topic": "new", "deleted": True}]
    assert not (point / "new").exists()
    (refused,) = ask(point, 'create-topic {"topic": "t"}')
    assert refused["kind"] == "TopicExists"


@promise(
    "What is not a verb, or names a task, topic or partition that does not exist, is EINVAL at the"
    " write, or at the close if the line lacks its end, and the reason is in the answer and in the"
    " log."
)
def test_what_is_no_verb(data: Path, mount: Mounting) -> None:
    point = mount(data, "writable", QUIET).point
    for line, why in (
        ("bogus", "no such verb; `help` lists the verbs"),
        ("pause nothing", "no such task; there are retention, cleaner, "),
        ("run", "needs one TASK"),
        ("help me", "takes no arguments"),
        ("expire nowhere", "no topic nowhere"),
        ("compact t/7", "t has no partition 7 (it has 0 to 1)"),
        ("expire t/x", "needs TOPIC or TOPIC/PARTITION"),
        ("create-topic t", "needs a JSON object"),
        ('create-topic {"topic": 5}', "field 'topic' is not one of "),
        ("delete-topic nowhere", "no topic nowhere"),
        ("x" * 100_000, "no such verb"),
    ):
        with conversation(point) as handle:
            assert errno_of(os.write, handle.fd, f"{line}\nstatus\n".encode()) == errno.EINVAL
            (row,) = handle.read()
            assert row["error"].startswith(why)
        assert logged(point, f"refused: control: {line[:200]}: {why}")
        handle_fd = os.open(point / ".kafkafs/control", os.O_WRONLY | os.O_TRUNC)
        assert os.write(handle_fd, line.encode()) == len(line)
        assert errno_of(os.close, handle_fd) == errno.EINVAL
    done = subprocess.run(
        ["bash", "-c", 'echo "pause cleaner" > control; echo bogus > control'],
        cwd=point / ".kafkafs",
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (
        1,
        "bash: line 1: echo: write error: Invalid argument\n",
    )
    assert [task["task"] for task in ask(point, "status") if task["paused"]] == ["cleaner"]


@promise(
    "A paused task does not run by itself until it is resumed; `run` runs it nevertheless, and is"
    " answered when it is done."
)
def test_pausing(data: Path, mount: Mounting) -> None:
    often = {
        "log.initial.task.delay.ms": "0",
        "log.retention.check.interval.ms": "20",
        "log.flush.offset.checkpoint.interval.ms": "20",
    }
    point = mount(data, "writable,maintain", often).point

    def task(name: str) -> Row:
        return next(each for each in ask(point, "status") if each["task"] == name)

    assert ask(point, "pause retention") == [{"task": "retention", "paused": True}]
    (done,) = ask(point, "run retention")  # after a run in progress
    assert done["task"] == "retention"
    assert not (point / "old/0/offset/0").exists()
    before = task("retention")["runs"]
    others = task("recovery-points")["runs"]
    wait_until(lambda: task("recovery-points")["runs"] > others + 20)
    now = task("retention")
    assert (now["runs"], now["paused"], now["nextRun"]) == (before, True, None)
    ask(point, "run retention")
    assert task("retention")["runs"] == before + 1
    ask(point, "resume retention")
    wait_until(lambda: task("retention")["runs"] > before + 2)


def rows_of(*words: object) -> list[Row]:
    done = run_kafkafs(*words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@promise(
    "`expire` and `compact` answer with the rows that `kafkafs expire --json` and"
    " `kafkafs compact --json` print, as soon as each is known."
)
def test_rows(data: Path, mount: Mounting, tmp_path: Path) -> None:
    copy = shutil.copytree(data, tmp_path / "copy")
    point = mount(data, "writable", QUIET).point
    for verb, words, options in (
        ("expire", "dry-run all", "--dry-run --all"),
        ("compact", "keys force dry-run", "--force --dry-run"),
        ("compact", "keys/0 force all", "--force --all"),
        ("expire", "old t all", "--all"),
        ("expire", "", ""),
        ("compact", "", ""),
    ):
        names = [word for word in words.split() if word not in ("force", "dry-run", "all")]
        answer = ask(point, f"{verb} {words}")
        assert answer == rows_of(verb, "--json", *options.split(), copy, *names)
        assert answer or not words
    (row,) = ask(point, "compact t/0")
    assert (row["where"], row["kind"]) == ("t-0", "NotCompacted")


@promise(
    "A verb that takes long makes no other request wait: a read of its answer ends with EINTR"
    " about once a second, and the verb continues when the handle is closed."
)
def test_what_takes_long(tmp_path: Path, mount: Mounting) -> None:
    point = mount(slow_to_clean(tmp_path / "data"), "writable", SLOWLY).point
    with conversation(point) as handle:
        handle.write("compact keys force\n")
        libc = ctypes.CDLL(None, use_errno=True)  # os.read retries by itself
        answer = ctypes.create_string_buffer(100)
        assert libc.read(handle.fd, answer, len(answer)) == -1, answer.value
        assert ctypes.get_errno() == errno.EINTR
        assert ask(point, "status")
        assert (point / "keys/0/offset/last").read_bytes()
        # the cleaning that the handle waits for is still running
        assert (point / "keys/0/offset/350000").exists()
    wait_until(lambda: not (point / "keys/0/offset/350000").exists())


@promise(
    "`kafkafs expire`, `compact`, `erase`, `purge`, `append`, `undelete` and `topic` on log"
    " directories that a mount of the same user holds have that mount do the work, with the same"
    " output and exit code as without one; mounts that do not answer, and those of other users, are"
    " ignored."
)
def test_the_cli(data: Path, mount: Mounting, tmp_path: Path) -> None:
    """`tests/cli/test_mounted_engine.py` tests it further."""
    copy = shutil.copytree(data, tmp_path / "copy")
    point = mount(data, "writable", QUIET).point
    for command in (
        "expire --json DATA old",
        "append --json --key-separator = DATA t/1",
        "append --format jsonl DATA t/1",
        "append DATA nowhere/0",
        "topic delete DATA nowhere",
        "erase --key nobody DATA t keys",
        "erase --key nobody DATA nowhere",
        "erase --offset 1 DATA t",
        "purge DATA t",
        "purge DATA nowhere",
    ):
        through, alone = (
            run_kafkafs(*command.replace("DATA", str(where)).split(), input=b"k=v\nbad\n")
            for where in (data, copy)
        )
        assert (through.stdout, through.stderr, through.returncode) == (
            alone.stdout,
            alone.stderr,
            alone.returncode,
        ), command
    assert (point / "t/1/values").read_bytes() == b"v\n"
    assert not (point / "old/0/offset/0").exists()


# Slows the cleaner down to some seconds for `slow_to_clean`: throttling starts after 300 ms.
SLOWLY: Mapping[str, str] = {
    "log.cleaner.io.max.bytes.per.second": "50000000",
    "log.cleaner.enable": "false",
}


def slow_to_clean(directory: Path) -> Path:
    """Makes a topic `keys` with 400,000 records of many keys in segments of a megabyte: enough for
    several checks of the rate."""
    keys = [b"key %d" % number for number in range(40_000)]
    with LogManager(str(directory)) as engine:
        settings = {"cleanup.policy": "compact", "segment.bytes": "1048576"}
        engine.create_topic("keys", configs=settings)
        for _ in range(10):
            values = [b"%0400d" % number for number in range(len(keys))]
            engine.writer("keys", 0).append_records(RecordColumns.from_values(values, keys))
    return directory
