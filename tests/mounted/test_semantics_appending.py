"""The promises of SEMANTICS.md about `append` and `append.jsonl`, one by one."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.mounted.conftest import Mounting
from tests.mounted.mounting import clear, errno_of, is_mounted, mounted, sh, start
from tests.mounted.promises import promise
from tests.reading import Plain, read
from tests.waiting import wait_until

FOREVER = str((1 << 63) - 1)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with empty topics: `t` with two partitions, `small` with a low limit for
    records, and the compacted `keyed`."""
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("t", 2, {"message.timestamp.before.max.ms": FOREVER})
        engine.create_topic("small", 1, {"max.message.bytes": "2000"})
        engine.create_topic("keyed", 1, {"cleanup.policy": "compact"})
    return tmp_path / "data"


def appended(data: Path, topic: str = "t", number: int = 0) -> list[Plain]:
    """Returns the records in the log files."""
    return read(Engine(str(data)).log(topic, number).view())


def values(data: Path, topic: str = "t", number: int = 0) -> list[bytes | None]:
    return [record.value for record in appended(data, topic, number)]


@promise(
    "On a writable mount, each partition's directory also contains `append` and `append.jsonl`,"
    " with mode 0200 and size 0."
)
def test_the_files(data: Path, mount: Mounting) -> None:
    point = mount(data, "writable").point
    assert {"append", "append.jsonl"} <= set(os.listdir(point / "t/1"))
    for name in ("append", "append.jsonl"):
        (point / "t/1" / name).write_bytes(b"")
        status = (point / "t/1" / name).stat()
        assert (stat.S_IMODE(status.st_mode), status.st_size) == (0o200, 0)
        assert status.st_blksize == 1 << 20  # cat writes as much at a time


def test_a_mount_that_only_reads_has_neither(data: Path, mount: Mounting) -> None:
    point = mount(data).point
    assert not {"append", "append.jsonl"} & set(os.listdir(point / "t/1"))
    assert errno_of(os.stat, point / "t/1/append") == errno.ENOENT


@promise(
    "Each line written to `append` becomes a record with the line as its value, byte for byte"
    " without the line end, no key and the current time."
)
def test_lines(data: Path, mount: Mounting) -> None:
    point = mount(data, "writable").point
    before = time.time_ns() // 1_000_000
    (point / "t/0/append").write_bytes(b"one\n\n\xff\x00=\r\n")
    found = appended(data)
    assert [(each.key, each.value) for each in found] == [
        (None, b"one"), (None, b""), (None, b"\xff\x00=\r"),
    ]  # fmt: skip
    assert all(before <= each.timestamp <= time.time_ns() // 1_000_000 for each in found)
    assert (point / "t/0/values").read_bytes() == b"one\n\n\xff\x00=\r\n"


@promise(
    "With `-o key_separator=TEXT`, each line is a key, the first TEXT in it and a value;"
    " `key_separator==` separates them by `=`."
)
def test_keys(data: Path, mount: Mounting) -> None:
    first = mount(data, "writable,key_separator=::")
    sh("echo a::1::2 >> append; echo :: >> append", first.point / "t/0")
    assert first.end() == 0
    point = mount(data, "writable,key_separator==").point
    sh("echo a=1=2 > append", point / "t/1")
    assert [(each.key, each.value) for each in appended(data)] == [(b"a", b"1::2"), (b"", b"")]
    assert [(each.key, each.value) for each in appended(data, "t", 1)] == [(b"a", b"1=2")]
    assert errno_of((point / "t/1/append").write_bytes, b"none\n") == errno.EINVAL


@promise(
    "Each line written to `append.jsonl` is a record in the form of `records.jsonl`; its key,"
    " value, headers and timestamp are kept, and `cat records.jsonl >> append.jsonl` copies a"
    " partition."
)
def test_json(data: Path, mount: Mounting, corpus: Callable[[str], Path], clean: Path) -> None:
    point = mount(data, "writable").point
    for source in ("idem", "codec-gzip"):
        sh(f"cat {clean}/{source}/0/records.jsonl >> append.jsonl", point / "t/0")
    logs = [Engine(str(corpus("kafka43-clean"))).log(topic, 0) for topic in ("idem", "codec-gzip")]
    expected = [record for log in logs for record in read(log.view())]
    assert [(r.timestamp, r.key, r.value, r.headers) for r in appended(data)] == [
        (r.timestamp, r.key, r.value, r.headers) for r in expected
    ]


@promise(
    "All complete lines of a write are appended when the write returns, in their order; what"
    " follows the last line end waits for its rest.",
    "When a descriptor of the file is closed, by a program or because it was killed, a last line"
    " without a line end is appended, too.",
)
def test_when_lines_are_appended(data: Path, mount: Mounting) -> None:
    point = mount(data, "writable").point
    file = os.open(point / "t/0/append", os.O_WRONLY)
    assert os.write(file, b"a\nb\nc") == 5
    assert values(data) == [b"a", b"b"]
    os.write(file, b"d")
    assert values(data) == [b"a", b"b"]
    os.write(file, b"e\nf")
    assert values(data) == [b"a", b"b", b"cde"]
    os.close(os.dup(file))
    assert values(data) == [b"a", b"b", b"cde", b"f"]
    os.close(file)
    assert values(data) == [b"a", b"b", b"cde", b"f"]
    command = "import os, sys; print('go', end='', file=sys.stdout, flush=True); os.read(0, 1)"
    with open(point / "t/1/append", "wb") as append:
        killed = subprocess.Popen([sys.executable, "-c", command], stdin=-1, stdout=append)
        wait_until(lambda: (point / "t/1/append").stat().st_blocks == 0 and _is_idle(killed.pid))
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        wait_until(lambda: values(data, "t", 1) == [b"go"])


def _is_idle(pid: int) -> bool:
    """Returns whether the process waits to read."""
    return "pipe" in Path(f"/proc/{pid}/wchan").read_text(encoding="ascii")


@promise(
    "Any number of programs may write at the same time: the records of each stay in order, and no"
    " line is torn or mixed with another."
)
def test_many_writers(data: Path, mount: Mounting) -> None:
    point = mount(data, "writable").point
    program = """if 1:
        import os, sys
        name, each = sys.argv[2:]
        file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
        data = b"".join(b"%s %06d\\n" % (name.encode(), n) for n in range(int(each)))
        size, at = 37, 0
        while at < len(data):
            at += os.write(file, data[at : at + size])
            size = size * 7 % 9001 + 1
    """
    each = 3000
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", program, point / "t/0/append", str(name), str(each)]
        )
        for name in range(16)
    ]
    assert [writer.wait(60) for writer in writers] == [0] * 16
    seen: dict[bytes, int] = {}
    for value in values(data):
        assert value is not None
        name, number = value.split(b" ")
        assert int(number) == seen.get(name, 0)
        seen[name] = int(number) + 1
    assert seen == {b"%d" % name: each for name in range(16)}


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_random_writes_against_a_model(data: Path, mount: Mounting, seed: int) -> None:
    """As fsx does: wherever writes are split, and whatever else is done to the files, the records
    are the lines of each open file."""
    source = random.Random(seed)
    path = mount(data, "writable").point / "t/0/append"
    flags = os.O_WRONLY | os.O_CREAT
    files = [os.open(path, flags | each) for each in (0, os.O_APPEND, os.O_TRUNC)]
    rests = [b""] * len(files)
    expected: list[bytes] = []

    def end_line(which: int) -> None:
        if rests[which]:
            expected.append(rests[which])
        rests[which] = b""

    for _ in range(600):
        which = source.randrange(len(files))
        kind = source.choice(["write"] * 6 + ["truncate", "sync", "dup", "seek"])
        if kind == "write":
            length = source.choice([0, 1, 3, 50, 5000, 70_000])
            piece = source.randbytes(length).translate(_FEW_BREAKS)
            assert os.write(files[which], piece) == length
            *lines, rests[which] = (rests[which] + piece).split(b"\n")
            expected += lines
        elif kind == "truncate":
            os.ftruncate(files[which], source.randrange(1 << 20))
        elif kind == "sync":
            os.fsync(files[which])
        elif kind == "seek":
            os.lseek(files[which], source.randrange(1 << 20), os.SEEK_SET)
        else:
            os.close(os.dup(files[which]))
            end_line(which)
    for which, file in enumerate(files):
        os.close(file)
        end_line(which)
    assert values(data) == expected


# Random bytes with a line break in place of about every thirtieth, and nowhere else.
_FEW_BREAKS = bytes(10 if byte < 8 else 11 if byte == 10 else byte for byte in range(256))


@promise(
    "Writing always appends, at whatever position and however the file was opened; `>`,"
    " truncate(2) and ftruncate(2) remove nothing."
)
def test_positions(data: Path, mount: Mounting) -> None:
    path = mount(data, "writable").point / "t/0/append"
    for flags in (os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_CREAT):
        file = os.open(path, flags)
        os.pwrite(file, b"a\n", 0)
        os.pwrite(file, b"b\n", 1 << 40)
        os.ftruncate(file, 0)
        os.ftruncate(file, 7)
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, b"c\n")
        os.close(file)
    os.truncate(path, 0)
    os.truncate(path, 7)
    sh("echo d > append; echo e >> append; echo f | tee append", path.parent)
    assert values(data) == [b"a", b"b", b"c"] * 3 + [b"d", b"e", b"f"]


@promise(
    "At a line that is not a record, or that Kafka would reject, write(2) is EINVAL, or EFBIG if"
    " it is too large; all lines before it are appended, and no line after it.",
    "Every later write, fsync and close through the same open file returns that error again, and"
    " the mount's log names topic, partition, file and the number of the line since the file was"
    " opened.",
)
@pytest.mark.parametrize(
    ("topic", "name", "bad", "number", "why"),
    [
        ("t", "append.jsonl", b'{"vale":"x"}', errno.EINVAL, '"vale" is not a field of a record'),
        ("t", "append.jsonl", b"", errno.EINVAL, "invalid JSON"),
        ("keyed", "append", b"no key", errno.EINVAL, "key"),
        ("small", "append", b"x" * 2000, errno.EFBIG, "2000"),
    ],
)
def test_bad_lines(
    data: Path, mount: Mounting, topic: str, name: str, bad: bytes, number: int, why: str
) -> None:
    daemon = mount(data, "writable")
    path = daemon.point / topic / "0" / name
    good = b'{"key":"k","value":"v"}\n' if topic == "t" else b"v\n"
    lines = 0 if topic == "keyed" else 40
    file = os.open(path, os.O_WRONLY)
    if lines:
        os.write(file, good * 17)
        assert os.write(file, good[:1]) == 1
    rest = good[1:] + good * (lines - 18) if lines else b""
    assert errno_of(os.write, file, rest + bad + b"\n" + good) == number
    assert len(values(data, topic)) == lines
    assert errno_of(os.write, file, good) == number
    assert errno_of(os.fsync, file) == number
    assert errno_of(os.close, file) == number
    assert len(values(data, topic)) == lines
    told = [line for line in daemon.lines("INFO") if "refused: " in line]
    assert len(told) == 1
    assert f"refused: {topic}/0/{name}: line {lines + 1}: " in told[0]
    assert why in told[0]
    if topic != "keyed":
        path.write_bytes(good)  # a new handle starts afresh
        assert len(values(data, topic)) == lines + 1


@promise(
    "A line without an end is EFBIG as soon as it is longer than six times `max.message.bytes`"
    " plus 64 KiB, or than 256 MiB: an open file keeps no more in memory."
)
def test_a_line_without_an_end(data: Path, mount: Mounting) -> None:
    path = mount(data, "writable").point / "small/0/append.jsonl"
    limit = 6 * 2000 + 65536
    file = os.open(path, os.O_WRONLY)
    os.write(file, b'{"value":"v"}\n' + b" " * 10_000)
    assert os.write(file, b" " * (limit - 10_000)) == limit - 10_000
    assert errno_of(os.write, file, b" ") == errno.EFBIG
    assert errno_of(os.close, file) == errno.EFBIG
    assert values(data, "small") == [b"v"]


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@promise(
    "On a full disk, write(2) is ENOSPC; a part of a line or record is never visible, the"
    " beginning of a line that was written before is not appended at close, and the write can be"
    " repeated."
)
def test_a_full_disk(full: Path, tmp_path: Path) -> None:
    data = full / "data"
    with LogManager(str(data)) as engine:
        engine.create_topic("t", configs={"segment.bytes": str(8 << 20)})
    place = tmp_path / "place"
    place.mkdir()
    with mounted([data], place, "writable") as daemon:
        daemon.expects_warnings = True
        path = daemon.point / "t/0/append"
        lines = b"".join(b"%06d%s\n" % (number, b"x" * 993) for number in range(1000))
        file = os.open(path, os.O_WRONLY)
        written = 0
        os.write(file, b"torn ")
        while (failed := errno_of(os.write, file, lines)) == 0:
            written += len(lines)
        assert failed == errno.ENOSPC
        count = written // len(lines) * 1000
        assert count > 10_000
        found = values(data)
        assert len(found) == count
        assert found[0] == b"torn " + lines[:999]
        assert set(found[1:]) <= set(lines.split(b"\n"))
        other = os.open(path, os.O_WRONLY)
        os.write(other, b"begun")
        assert errno_of(os.write, other, lines) == errno.ENOSPC
        os.close(other)
        assert len(values(data)) == count
        subprocess.run(["mount", "-o", "remount,size=80m", full], check=True)
        assert os.write(file, lines) == len(lines)
        os.close(file)
        assert len(values(data)) == count + 1000
        assert values(data)[-1] == lines.split(b"\n")[-2]


@promise("fsync(2) returns when every appended record is durable.")
def test_fsync(data: Path, tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    daemon = start([data], tmp_path / "mnt", "writable", tmp_path / "log")
    try:
        wait_until(lambda: is_mounted(daemon.point))
        file = os.open(daemon.point / "t/0/append", os.O_WRONLY)
        os.write(file, b"a\nb\nc")
        os.fsync(file)
    finally:
        clear(daemon)
    assert errno_of(os.close, file) == errno.ENOTCONN
    assert values(data) == [b"a", b"b"]


@promise("Reading is EACCES, and EPERM for users who may read everything.")
def test_reading(data: Path, mount: Mounting) -> None:
    path = mount(data, "writable,allow_other").point / "t/0/append"
    assert errno_of(path.read_bytes) == errno.EPERM
    file = os.open(path, os.O_RDWR)
    assert errno_of(os.read, file, 10) == errno.EPERM
    os.close(file)
    as_nobody = "import os, sys; os.setgid(65534); os.setuid(65534); open(sys.argv[1], sys.argv[2])"
    for mode in ("r", "a"):
        command = [sys.executable, "-c", as_nobody, str(path), mode]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "PermissionError: [Errno 13]" in done.stderr


@promise("Modes, owners and times that cp sets on the files are accepted and ignored.")
def test_tools_that_copy(data: Path, mount: Mounting, tmp_path: Path) -> None:
    point = mount(data, "writable").point
    (tmp_path / "lines").write_bytes(b"a\nb\n")
    (tmp_path / "json").write_bytes(b'{"value":"c"}\n{"value":"d"}\n')
    for command in (
        f"cp {tmp_path}/lines append",
        f"cp -p {tmp_path}/lines append",
        f"cat {tmp_path}/lines {tmp_path}/lines > append",
        f"dd if={tmp_path}/lines of=append bs=1 status=none",
        f"tee -a append < {tmp_path}/lines",
        f"split -l 1 --filter 'cat >> append' {tmp_path}/lines",
        f"cp {tmp_path}/json append.jsonl",
        f"jq -c . {tmp_path}/json >> append.jsonl",
        """python3 -c 'print("a", file=open("append", "a"))'""",
        """python3 -c 'print("b", file=open("append", "w"))'""",
    ):
        subprocess.run(
            ["bash", "-c", command], cwd=point / "t/0", check=True, stdout=subprocess.DEVNULL
        )
    expected = [b"a", b"b"] * 7 + [b"c", b"d"] * 2 + [b"a", b"b"]
    assert values(data) == expected
    assert stat.S_IMODE((point / "t/0/append").stat().st_mode) == 0o200


@promise(
    "What is written to a pipe into `append.jsonl` streams through a bounded amount of the daemon's"
    " memory."
)
@pytest.mark.slow
def test_a_large_pipe(data: Path, mount: Mounting, tmp_path: Path) -> None:
    daemon = mount(data, "writable")
    line = json.dumps({"key": "k", "value": "v" * 170, "headers": []}) + "\n"
    (tmp_path / "lines").write_text(line * 10_000)
    sh(f"cat {tmp_path}/lines >> append.jsonl", daemon.point / "t/0")
    before = daemon.memory_kb("VmRSS")
    times = 200 * 2**20 // (len(line) * 10_000)
    copies = " ".join([f"{tmp_path}/lines"] * times)
    sh(f"cat {copies} | cat >> append.jsonl", daemon.point / "t/0")
    assert daemon.memory_kb("VmHWM") < before + 64 * 1024
    status = json.loads((daemon.point / "t/0/status.json").read_bytes())
    assert status["logEndOffset"] == 10_000 * (times + 1)


def test_others_are_answered_while_much_is_appended(data: Path, mount: Mounting) -> None:
    point = mount(data, "writable").point
    lines = b'{"value":"a record\\n of some bytes"}\n' * 30_000
    is_enough = threading.Event()

    def append() -> None:
        with open(point / "t/0/append.jsonl", "ab", buffering=0) as file:
            for _ in range(1000):
                if is_enough.is_set():
                    return
                file.write(lines)

    log = data / "t-0" / f"{0:020}.log"
    grown: list[int] = []  # bytes that were appended during each request
    with ThreadPoolExecutor(1) as appending:
        appended = appending.submit(append)
        while not appended.done() and len(grown) < 20:
            before = log.stat().st_size
            os.stat(point / "t/1/status.json")
            grown.append(log.stat().st_size - before)
        while not appended.done() and log.stat().st_size < 10 * len(lines):
            time.sleep(0.01)
        is_answered_meanwhile = not appended.done()
        is_enough.set()
        appended.result()
    assert is_answered_meanwhile
    assert sorted(grown)[len(grown) // 2] < 2 * len(lines)
