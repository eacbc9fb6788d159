"""The promises of SEMANTICS.md about writing to `key/`, one by one."""

from __future__ import annotations

import errno
import os
import random
import stat
import subprocess
import time
from pathlib import Path

import pytest

from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.mounted.conftest import Mounting
from tests.mounted.mounting import errno_of, mounted, sh
from tests.mounted.promises import promise
from tests.reading import read
from tests.waiting import wait_until

Pair = tuple[bytes | None, bytes | None]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with empty topics: the compacted `c`, `t`, which is not compacted, and
    `small` with a low limit for records."""
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("c", 1, {"cleanup.policy": "compact"})
        engine.create_topic("t", 1)
        engine.create_topic("small", 1, {"max.message.bytes": "1000"})
    return tmp_path / "data"


def pairs(data: Path, topic: str = "c") -> list[Pair]:
    """Returns key and value of the records in the log files."""
    return [(r.key, r.value) for r in read(Engine(str(data)).log(topic, 0).view())]


@promise(
    "On a writable mount, the files in `key` have mode 0644 and inode numbers of their own, and"
    " any name of a key can be created there.",
    "What was written to `key/K` is appended when the file is closed, as a record with the key K,"
    " the file's bytes as its value, byte for byte, and the current time; `echo v` also writes a"
    " line end.",
)
def test_writing(data: Path, mount: Mounting) -> None:
    point = mount(data, "writable").point / "c/0"
    before = time.time_ns()
    sh("echo v > key/K", point)
    (point / "key/bytes").write_bytes(bytes(range(256)) * 3)
    assert pairs(data) == [(b"K", b"v\n"), (b"bytes", bytes(range(256)) * 3)]
    assert (point / "key/K").read_bytes() == (point / "offset/0").read_bytes() == b"v\n"
    status = (point / "key/K").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_size) == (0o644, 2)
    assert status.st_ino != (point / "offset/0").stat().st_ino
    assert before // 1_000_000 <= status.st_mtime_ns // 1_000_000 <= time.time_ns() // 1_000_000
    listed = {each.name: each.stat() for each in os.scandir(point / "key")}
    assert {name: (found.st_size, found.st_ino) for name, found in listed.items()} == {
        "K": (2, status.st_ino),
        "bytes": (768, (point / "key/bytes").stat().st_ino),
    }
    assert os.getxattr(point / "key/K", "user.kafka.key") == b"K"


@promise(
    "A file that is opened with O_TRUNC, or created, is empty at first; otherwise it begins with"
    " the current value, and `>>` appends to that."
)
def test_what_a_file_begins_with(data: Path, mount: Mounting) -> None:
    key = mount(data, "writable").point / "c/0/key/K"
    sh("echo one >> K; echo two >> K; echo three > K; printf X | dd of=K conv=notrunc", key.parent)
    with key.open("r+b") as file:
        assert file.read() == b"Xhree\n"
        file.seek(2)
        file.write(b"..")
        file.truncate(5)
    assert [value for _, value in pairs(data)] == [
        b"one\n", b"one\ntwo\n", b"three\n", b"Xhree\n", b"Xh..e",
    ]  # fmt: skip
    os.truncate(key, 8)
    assert key.read_bytes() == b"Xh..e\0\0\0"


@promise(
    "Each close of a descriptor appends one record if anything was written or truncated since the"
    " last one, and none otherwise.",
    "All open files of a key share one content; reading through a file opened for writing shows"
    " it, and `key/K` opened only for reading shows the latest record.",
)
def test_descriptors(data: Path, mount: Mounting) -> None:
    key = mount(data, "writable").point / "c/0/key/K"
    file = os.open(key, os.O_RDWR | os.O_CREAT)
    os.write(file, b"a")
    other = os.open(key, os.O_RDWR | os.O_APPEND)
    os.write(other, b"b")
    assert os.pread(file, 9, 0) == os.pread(other, 9, 0) == b"ab"
    assert os.fstat(file).st_size == 2
    assert pairs(data) == []
    assert key.read_bytes() == b""
    os.close(other)
    assert pairs(data) == [(b"K", b"ab")]
    assert key.read_bytes() == b"ab"
    os.close(os.dup(file))
    assert len(pairs(data)) == 1
    os.ftruncate(file, 1)
    os.close(os.dup(file))
    assert pairs(data)[1:] == [(b"K", b"a")]
    os.close(file)
    assert len(pairs(data)) == 2
    os.close(os.open(key, os.O_WRONLY))
    os.close(os.open(key, os.O_RDONLY))
    assert len(pairs(data)) == 2
    sh("(echo 1; /bin/echo 2) > K", key.parent)
    assert pairs(data)[2:] == [(b"K", b"1\n2\n")]


@promise(
    "A file that was only created or truncated, and not written, becomes a record with an empty"
    " value when the last program that had it open in this way closes it, perhaps a moment after"
    " close(2) has returned."
)
def test_empty_values(data: Path, mount: Mounting) -> None:
    keys = mount(data, "writable").point / "c/0/key"
    sh(": > made; echo v > emptied; : > emptied; touch touched", keys)
    wait_until(lambda: len(pairs(data)) == 4)
    assert sorted(pairs(data), key=repr) == [
        (b"emptied", b""), (b"emptied", b"v\n"), (b"made", b""), (b"touched", b""),
    ]  # fmt: skip
    assert pairs(data).index((b"emptied", b"v\n")) < pairs(data).index((b"emptied", b""))
    assert {name: (keys / name).read_bytes() for name in os.listdir(keys)} == {
        "emptied": b"", "made": b"", "touched": b"",
    }  # fmt: skip


@promise(
    "`rm key/K` appends a tombstone, also if the topic is not compacted; it is ENOENT if the key"
    " has no value."
)
@pytest.mark.parametrize("topic", ["c", "t"])
def test_removing(data: Path, mount: Mounting, topic: str) -> None:
    keys = mount(data, "writable").point / topic / "0/key"
    assert errno_of(os.unlink, keys / "K") == errno.ENOENT
    sh("echo v > K; echo w > L; rm K", keys)
    assert pairs(data, topic) == [(b"K", b"v\n"), (b"L", b"w\n"), (b"K", None)]
    assert errno_of(os.unlink, keys / "K") == errno.ENOENT
    assert errno_of(os.stat, keys / "K") == errno.ENOENT
    assert os.listdir(keys) == ["L"]
    file = os.open(keys / "N", os.O_WRONLY | os.O_CREAT)
    os.write(file, b"never")
    os.unlink(keys / "N")
    os.close(file)
    assert len(pairs(data, topic)) == 3
    sh("echo again > K", keys)
    assert (keys / "K").read_bytes() == b"again\n"


@promise(
    "A value larger than `max.message.bytes` is EFBIG at the write or at the close; nothing of it"
    " is appended, and the key keeps its previous value."
)
def test_large_values(data: Path, mount: Mounting) -> None:
    key = mount(data, "writable").point / "small/0/key/K"
    key.write_bytes(b"small")
    file = os.open(key, os.O_WRONLY | os.O_TRUNC)
    assert os.write(file, b"x" * 900) == 900
    assert errno_of(os.write, file, b"x" * 101) == errno.EFBIG
    assert errno_of(os.write, file, b"x") == errno.EFBIG
    assert errno_of(os.close, file) == errno.EFBIG
    file = os.open(key, os.O_WRONLY | os.O_TRUNC)
    os.write(file, b"x" * 990)  # the batch overhead makes it too large
    assert errno_of(os.close, file) == errno.EFBIG
    assert errno_of(os.truncate, key, 1 << 40) == errno.EFBIG
    assert pairs(data, "small") == [(b"K", b"small")]
    assert key.read_bytes() == b"small"
    assert key.stat().st_size == 5


@promise("On a full disk, close(2) is ENOSPC, and the key keeps its previous value.")
def test_a_full_disk(tmp_path: Path) -> None:
    disk, place = tmp_path / "disk", tmp_path / "place"
    disk.mkdir()
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", disk], check=True)
    try:
        with LogManager(str(disk / "data")) as engine:
            engine.create_topic("c", 1, {"segment.bytes": str(8 << 20)})
        with mounted([disk / "data"], place, "writable") as daemon:
            daemon.expects_warnings = True
            key = daemon.point / "c/0/key/K"
            value, last = bytes(1_000_000), b""
            for number in range(64):
                value = b"%08d" % number + value[8:]
                file = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.write(file, value)
                failed = errno_of(os.close, file)
                if failed:
                    break
                last = value
            assert failed == errno.ENOSPC
            assert last
            assert key.read_bytes() == last
    finally:
        subprocess.run(["umount", disk], check=True)


@promise("fsync(2) makes a record of what was written, and makes it durable.")
def test_fsync(data: Path, mount: Mounting) -> None:
    key = mount(data, "writable").point / "c/0/key/K"
    file = os.open(key, os.O_WRONLY | os.O_CREAT)
    os.fsync(file)
    assert pairs(data) == [(b"K", b"")]
    os.write(file, b"v")
    os.fsync(file)
    assert pairs(data) == [(b"K", b""), (b"K", b"v")]
    os.close(file)
    assert len(pairs(data)) == 2


@promise(
    "Names are those of section 14: `%XX` stands for any byte, and `%` is the empty key; a name"
    " that is not that of a key, or an unknown name that was truncated, cannot be created: EINVAL."
)
def test_names(data: Path, mount: Mounting) -> None:
    daemon = mount(data, "writable")
    keys = daemon.point / "c/0/key"
    long = b"k" * 300
    with_long = daemon.point / "c/0/append.jsonl"
    with_long.write_bytes(b'{"key":"%s","value":"v"}\n' % long)
    (cut,) = os.listdir(keys)
    for name, key in (
        ("a%2Fb", b"a/b"),
        ("%", b""),
        ("%2E%2e", b".."),
        ("%ff", b"\xff"),
        ("é", "é".encode()),
    ):
        (keys / name).write_bytes(b"w")
        assert pairs(data)[-1] == (key, b"w")
    (keys / cut).write_bytes(b"longer")
    assert pairs(data)[-1] == (long, b"longer")
    os.unlink(keys / cut)
    assert pairs(data)[-1] == (long, None)
    count = len(pairs(data))
    for name in ("%zz", "a%", f"k%~{'0' * 64}"):
        assert errno_of((keys / name).write_bytes, b"w") == errno.EINVAL
    assert len(pairs(data)) == count


@promise(
    "cp and mv copy files with any bytes from other filesystems; modes, owners and times that they"
    " set are accepted and ignored; renaming inside `key` is EPERM."
)
def test_tools(data: Path, mount: Mounting, tmp_path: Path) -> None:
    keys = mount(data, "writable").point / "c/0/key"
    content = random.Random(20).randbytes(100_000)
    for command in ("cp {} K", "cp -p {} K", "cp -p {} N", "mv {} K", "mv {} M", "install {} I"):
        (tmp_path / "file").write_bytes(content)
        done = subprocess.run(
            ["bash", "-c", command.format(tmp_path / "file")],
            cwd=keys, check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), command
        assert (keys / command[-1]).read_bytes() == content
        assert pairs(data)[-1] == (command[-1].encode(), content)
    assert errno_of(os.rename, keys / "K", keys / "L") == errno.EPERM
    assert errno_of(os.rename, tmp_path, keys / "L") == errno.EXDEV


def test_what_others_may(data: Path, mount: Mounting) -> None:
    key = mount(data, "writable,allow_other").point / "c/0/key/K"
    key.write_bytes(b"v")
    as_nobody = "import os, sys; os.setgid(65534); os.setuid(65534); open(sys.argv[1], 'a')"
    for path in (key, key.with_name("L")):
        done = subprocess.run(
            ["python3", "-c", as_nobody, path], capture_output=True, text=True, check=False
        )
        assert "PermissionError: [Errno 13]" in done.stderr


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_random_operations_on_keys_and_lines_against_a_model(
    data: Path, mount: Mounting, seed: int
) -> None:
    """As fsx does: whatever the order of reads, writes and truncations, a key's file has the bytes
    of an ordinary file, and the log has what was closed."""
    source = random.Random(seed)
    point = mount(data, "writable").point / "c/0"
    content: dict[str, bytearray] = {}  # of keys with a value
    expected: dict[str, bytes | None] = {}
    for _ in range(400):
        name = source.choice("abc")
        path = point / "key" / name
        if source.random() < 0.1:
            assert errno_of(os.unlink, path) == (0 if name in content else errno.ENOENT)
            if name in content:
                del content[name]
                expected[name] = None
            continue
        flags = source.choice([0, os.O_TRUNC, os.O_APPEND]) | os.O_RDWR | os.O_CREAT
        model = content.setdefault(name, bytearray())
        if flags & os.O_TRUNC:
            model.clear()
        file = os.open(path, flags)
        for _ in range(source.randrange(1, 6)):
            _step(source, file, model, appends=bool(flags & os.O_APPEND))
        os.close(file)
        expected[name] = bytes(model)
        assert path.read_bytes() == bytes(model)
        assert path.stat().st_size == len(model)
    latest = {(key or b"").decode(): value for key, value in pairs(data)}
    assert latest == expected


def _step(source: random.Random, file: int, model: bytearray, *, appends: bool) -> None:
    """Makes one random operation on a file and its model. `write` and `truncate` change them."""
    at, size = source.randrange(3000), source.randrange(1, 2000)
    kind = source.choice(["write", "write", "truncate", "read", "dup"])
    if kind == "write" or not model:
        data = source.randbytes(size)
        if appends:
            assert os.write(file, data) == size
            model += data
        else:
            assert os.pwrite(file, data, at) == size
            model.extend(bytes(max(at - len(model), 0)))
            model[at : at + size] = data
    elif kind == "truncate":
        os.ftruncate(file, at)
        del model[at:]
        model.extend(bytes(at - len(model)))
    elif kind == "read":
        assert os.pread(file, size, at) == bytes(model[at : at + size])
        assert os.fstat(file).st_size == len(model)
    else:
        os.close(os.dup(file))
