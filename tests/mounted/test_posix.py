"""A writable mount behaves as programs expect of a file system: permissions, names, errors.

The cases are those of common file system tests (such as pjdfstest), as far as they apply to a tree
in which most files cannot be created.
"""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_manager import LogManager
from tests.mounted.mounting import Mount, errno_of, mounted
from tests.mounted.promises import promise

NOBODY = 65534
Call = tuple[Callable[..., object], tuple[object, ...]]


@pytest.fixture(scope="module", autouse=True)
def _root() -> None:
    assert os.getuid() == 0, "these tests become another user, which only root can"


def _data(place: Path) -> Path:
    """Returns a log directory with three keyed records in topic `t`, and an empty topic `u`."""
    with LogManager(str(place / "data")) as engine:
        engine.create_topic("t")
        columns = RecordColumns.from_values([b"a", b"b", b"c"], keys=[b"x", b"y", b"z"])
        engine.writer("t", 0).append_records(columns)
        engine.create_topic("u")
    return place / "data"


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory that everybody can access, unlike pytest's."""
    directory = Path(tempfile.mkdtemp(prefix="kafkafs-posix-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def shared(place: Path) -> Iterator[Mount]:
    """A writable mount for everybody."""
    with mounted([_data(place)], place, "writable,allow_other") as mount:
        yield mount


@pytest.fixture(scope="module")
def point(shared: Mount) -> Path:
    return shared.point


def as_nobody(calls: list[Call]) -> list[int]:
    """Returns the errnos of calls made by a process of another user, 0 for those that succeed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writing, pickle.dumps([errno_of(call, *given) for call, given in calls]))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found: list[int] = pickle.load(pipe)
    os.waitpid(child, 0)
    return found


def _opening(path: Path, *flags: int) -> list[Call]:
    return [(os.open, (path, each)) for each in flags]


# -- who may do what ----------------------------------------------------------------------------


def test_without_allow_other_nobody_else_gets_in(place: Path) -> None:
    inner = place / "closed"
    inner.mkdir(mode=0o755)
    with mounted([_data(inner)], inner, "writable") as mount:
        t = mount.point / "t"
        calls: list[Call] = [
            *[(os.stat, (path,)) for path in (mount.point, t, t / "0/values")],
            *[(os.listdir, (path,)) for path in (mount.point, t)],
            *_opening(t / "0/values", os.O_RDONLY),
            *_opening(t / "0/append", os.O_WRONLY),
            (os.mkdir, (mount.point / "new",)),
            (os.unlink, (t / "0/offset/0",)),
            (os.rmdir, (mount.point / "u",)),
            (os.rename, (t / "config.properties", t / "x")),
        ]
        assert as_nobody(calls) == [errno.EACCES] * len(calls)
        assert (t / "0/values").read_bytes() == b"a\nb\nc\n"


def test_with_allow_other_everybody_reads_and_only_the_owner_writes(point: Path) -> None:
    t = point / "t"
    (t / "private").write_bytes(b"an editor's")
    os.chmod(t / "private", 0o600)
    reads: list[Call] = [
        (os.listdir, (point,)),
        *_opening(t / "0/values", os.O_RDONLY),
        *_opening(t / "0/offset/1", os.O_RDONLY),
        *_opening(t / "config.properties", os.O_RDONLY),
        (os.readlink, (t / "0/offset/first",)),
    ]
    assert as_nobody(reads) == [0] * len(reads)
    append, config = t / "0/append", t / "config.properties"
    denied: list[Call] = [
        *_opening(append, os.O_RDONLY, os.O_WRONLY, os.O_WRONLY | os.O_APPEND, os.O_RDWR),
        *_opening(t / "0/append.jsonl", os.O_WRONLY),
        *_opening(config, os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC),
        *_opening(t / "0/offset/0", os.O_WRONLY),
        *_opening(t / "0/key/x", os.O_WRONLY),
        *_opening(t / "0/key/new", os.O_WRONLY | os.O_CREAT),
        *_opening(t / "new", os.O_WRONLY | os.O_CREAT),
        *[(os.truncate, (path, 0)) for path in (append, config, t / "0/values")],
        *[
            (os.unlink, (t / "0" / name,))
            for name in ("offset/0", "offset/first", "key/x", "values")
        ],
        *[(os.unlink, (path,)) for path in (t / "0/segments" / f"{0:020}.log", config)],
        *[(os.rmdir, (path,)) for path in (point / "u", point / "u/0", t / "0/offset")],
        *[(os.mkdir, (path,)) for path in (point / "new", t / "1", t / "0/new")],
        (os.rename, (config, t / "x")),
        (os.rename, (t, point / "v")),
        (os.symlink, ("x", t / "link")),
        (os.mkfifo, (t / "pipe",)),
        (os.utime, (config,)),
        *_opening(t / "private", os.O_RDONLY, os.O_WRONLY),
    ]
    found = as_nobody(denied)
    assert [
        call for call, number in zip(denied, found, strict=True) if number != errno.EACCES
    ] == []
    owners: list[Call] = [
        (os.chmod, (config, 0o666)),
        (os.utime, (config, (1, 1))),
        (os.chown, (config, NOBODY, NOBODY)),
        (os.chmod, (t, 0o777)),
    ]
    assert as_nobody(owners) == [errno.EPERM] * len(owners)
    os.unlink(t / "private")
    assert sorted(os.listdir(t)) == ["0", "config.properties"]
    assert (t / "0/values").read_bytes() == b"a\nb\nc\n"


def test_control_is_the_owner_s(point: Path) -> None:
    control = point / ".kafkafs/control"
    assert stat.S_IMODE(control.stat().st_mode) == 0o600
    calls = _opening(control, os.O_RDONLY, os.O_WRONLY, os.O_RDWR)
    assert as_nobody(calls) == [errno.EACCES] * 3


def test_modes_decide(point: Path) -> None:
    config = point / "t/config.properties"
    os.chmod(config, 0o600)
    assert as_nobody(_opening(config, os.O_RDONLY)) == [errno.EACCES]
    os.chmod(config, 0o646)
    assert as_nobody([*_opening(config, os.O_WRONLY), (os.truncate, (config, 0))]) == [0, 0]
    os.chmod(config, 0o644)
    before = os.umask(0o027)
    try:
        os.close(os.open(point / "t/x", os.O_CREAT | os.O_WRONLY, 0o666))
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(point / "t/x").st_mode) == 0o640
    os.chmod(point / "t/x", 0o7777)
    assert stat.S_IMODE(os.stat(point / "t/x").st_mode) == 0o777
    os.unlink(point / "t/x")


# -- names --------------------------------------------------------------------------------------


@promise("In every directory, a name of more than 255 bytes is ENAMETOOLONG.")
def test_long_names(point: Path) -> None:
    inner = ("offset", "time", "key", "segments", "dump", "compacted", "compacted/offset")
    directories = [point, point / ".kafkafs", point / "t", point / "t/0"]
    for directory in (*directories, *(point / "t/0" / name for name in inner)):
        for name in ("n" * 256, "1" * 256, "n" * 1024, "é" * 128):
            path = directory / name
            assert errno_of(os.stat, path) == errno.ENAMETOOLONG
            assert errno_of(os.mkdir, path) == errno.ENAMETOOLONG
            assert errno_of(os.unlink, path) == errno.ENAMETOOLONG
            assert errno_of(os.rmdir, path) == errno.ENAMETOOLONG
            assert errno_of(os.open, path, os.O_CREAT | os.O_WRONLY) == errno.ENAMETOOLONG
        assert errno_of(os.stat, directory / ("n" * 255)) == errno.ENOENT
    (point / "t" / ("n" * 255)).touch()
    assert errno_of(os.rename, point / "t" / ("n" * 255), point / "t" / ("n" * 256)) == (
        errno.ENAMETOOLONG
    )
    os.unlink(point / "t" / ("n" * 255))
    assert errno_of(os.stat, f"{point}/" + "t/../" * 1000 + "t") == errno.ENAMETOOLONG
    assert os.statvfs(point).f_namemax == 255


@pytest.mark.parametrize(
    "name",
    [
        *(
            b"new\nline",
            b"\x1b[2J",
            b"\x7f",
            b"\xff\xfe",
            b"%2e%2e",
            b"..%2f..",
            b"-rf",
            b"...",
            b"~",
        ),
        *(
            b" ",
            b"a b",
            b'"',
            b"'",
            b"$(x)",
            b"a\\b",
            b"\\n",
            b"\xe2\x80\xae",
            b"\xed\xa0\x80",
            b"%s%n",
        ),
        *(b"x" * 255, b"\xff" * 255, b"01x", b"+1", b"-1", "٣".encode()),
    ],
)
def test_any_name_is_that_name(point: Path, name: bytes) -> None:
    topic = os.fsencode(point / "t")
    path = topic + b"/" + name
    assert errno_of(os.stat, path) == errno.ENOENT
    with open(path, "xb") as file:
        file.write(name)
    assert name in os.listdir(topic)
    with open(path, "rb") as file:
        assert file.read() == name
    os.rename(path, topic + b"/other")
    assert name not in os.listdir(topic)
    os.rename(topic + b"/other", path)
    os.unlink(path)
    assert set(os.listdir(topic)) == {b"0", b"config.properties"}
    for directory in (b"", b"/t/0", b"/t/0/offset", b"/t/0/segments", b"/t/0/time", b"/.kafkafs"):
        assert errno_of(os.stat, os.fsencode(point) + directory + b"/" + name) == errno.ENOENT


def test_dots_and_slashes(point: Path, place: Path) -> None:
    t = f"{point}/t"
    assert os.stat(f"{t}/0/../../t").st_ino == os.stat(t).st_ino == os.stat(f"{t}/.").st_ino
    assert os.stat(f"{t}/..").st_ino == os.stat(point).st_ino
    assert os.stat(f"{point}/..").st_ino == os.stat(place).st_ino
    for path in (f"{t}/0/values/", f"{t}/config.properties/", f"{t}/0/offset/0/"):
        assert errno_of(os.stat, path) == errno.ENOTDIR
        assert errno_of(os.unlink, path) == errno.ENOTDIR
    for path in (f"{t}/0/values/x", f"{t}/config.properties/..", f"{t}/0/offset/0/x"):
        assert errno_of(os.stat, path) == errno.ENOTDIR
        assert errno_of(os.mkdir, path) in (errno.ENOTDIR, errno.EEXIST)
    assert errno_of(os.open, f"{t}/x/", os.O_CREAT | os.O_WRONLY) == errno.EISDIR
    os.mkdir(f"{point}/slashed/")
    os.rmdir(f"{point}//slashed//")
    for path, number in (
        (f"{t}/.", errno.EINVAL),
        (f"{t}/0/..", errno.ENOTEMPTY),
        (f"{point}/", errno.EBUSY),
    ):
        assert errno_of(os.rmdir, path) == number, path
    assert errno_of(os.mkdir, f"{t}/.") == errno.EEXIST
    assert errno_of(os.rename, f"{t}/.", f"{point}/v") == errno.EBUSY
    assert errno_of(os.stat, "") == errno.ENOENT


# -- kinds --------------------------------------------------------------------------------------


def test_directories_are_no_files(point: Path) -> None:
    t = point / "t"
    assert errno_of(os.unlink, t) == errno.EISDIR
    assert errno_of(os.unlink, t / "0/offset") == errno.EISDIR
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_CREAT):
        assert errno_of(os.open, t, flags) == errno.EISDIR
    assert errno_of(os.truncate, t, 0) == errno.EISDIR
    fd = os.open(t, os.O_RDONLY)
    assert errno_of(os.read, fd, 1) == errno.EISDIR
    os.close(fd)


def test_files_are_no_directories(point: Path) -> None:
    t = point / "t"
    for path in (t / "config.properties", t / "0/values", t / "0/offset/0", t / "0/append"):
        assert errno_of(os.rmdir, path) == errno.ENOTDIR
        assert errno_of(os.listdir, path) == errno.ENOTDIR
        assert errno_of(os.open, path, os.O_RDONLY | os.O_DIRECTORY) == errno.ENOTDIR
    assert errno_of(os.rmdir, t / "0/offset/first") == errno.ENOTDIR
    assert errno_of(os.open, t / "0/offset/first", os.O_RDONLY | os.O_NOFOLLOW) == errno.ELOOP
    assert errno_of(os.readlink, t / "0/offset/0") == errno.EINVAL
    assert errno_of(os.readlink, t) == errno.EINVAL


def test_what_exists_is_not_made(point: Path) -> None:
    t = point / "t"
    for path in (t, t / "0", t / "config.properties", t / "0/offset/0", t / "0/offset/first"):
        assert errno_of(os.mkdir, path) == errno.EEXIST, path
        assert errno_of(os.symlink, "x", path) == errno.EEXIST, path
        assert errno_of(os.mkfifo, path) == errno.EEXIST, path
        assert errno_of(os.link, t / "config.properties", path) == errno.EEXIST, path
        assert errno_of(os.open, path, os.O_CREAT | os.O_EXCL | os.O_WRONLY) == errno.EEXIST, path
    os.close(os.open(t / "config.properties", os.O_CREAT | os.O_WRONLY))
    os.close(os.open(t / "0/offset/0", os.O_CREAT | os.O_RDONLY))


# -- renaming -----------------------------------------------------------------------------------


def test_rename(point: Path, place: Path) -> None:
    t = point / "t"
    (t / "x").write_bytes(b"x")
    assert errno_of(os.rename, t / "nothing", t / "y") == errno.ENOENT
    assert errno_of(os.rename, t / "x", point / "nothing" / "y") == errno.ENOENT
    assert errno_of(os.rename, t / "x", t / "config.properties" / "y") == errno.ENOTDIR
    assert errno_of(os.rename, t / "x", t / "0") == errno.EISDIR
    assert errno_of(os.rename, t / "0", t / "x") == errno.ENOTDIR
    assert errno_of(os.rename, t, t / "0" / "t") == errno.EINVAL
    assert errno_of(os.rename, t / "0", t) == errno.ENOTEMPTY
    assert errno_of(os.rename, t, point / "u") == errno.EPERM
    assert errno_of(os.rename, t / "0/offset/0", t / "0/offset/1") == errno.EPERM
    os.rename(t / "x", t / "x")
    assert (t / "x").read_bytes() == b"x"
    outside = place / "outside"
    outside.write_bytes(b"outside")
    for source, target in ((t / "x", outside), (outside, t / "x"), (t / "0/values", outside)):
        assert errno_of(os.rename, source, target) == errno.EXDEV
        assert errno_of(os.link, source, target.with_name("y")) == errno.EXDEV
    os.unlink(t / "x")
    assert outside.read_bytes() == b"outside"


# -- reading and writing ------------------------------------------------------------------------


def test_descriptors(point: Path) -> None:
    path = point / "t/x"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    assert errno_of(os.read, fd, 1) == errno.EBADF
    os.pwrite(fd, b"one", 100)  # O_APPEND wins, as on Linux
    os.write(fd, b"two")
    os.close(fd)
    assert path.read_bytes() == b"onetwo"
    fd = os.open(path, os.O_RDONLY)
    assert errno_of(os.write, fd, b"x") == errno.EBADF
    assert errno_of(os.ftruncate, fd, 0) in (errno.EINVAL, errno.EBADF)
    os.close(fd)
    assert errno_of(os.truncate, path, -1) == errno.EINVAL
    os.truncate(path, 4)
    os.truncate(path, 6)
    assert path.read_bytes() == b"onet\0\0"
    os.close(os.open(path, os.O_RDWR | os.O_TRUNC))
    assert path.stat().st_size == 0
    os.utime(path, (1, 1))
    assert path.stat().st_mtime == 1
    os.utime(path)
    assert path.stat().st_mtime > 1_600_000_000
    os.unlink(path)
    assert errno_of(os.unlink, path) == errno.ENOENT


_CHANGES = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 9000), st.binary(min_size=1, max_size=5000)),
    st.tuples(st.just("cut"), st.integers(0, 20_000), st.just(b"")),
    st.tuples(st.just("read"), st.integers(0, 20_000), st.just(b"")),
    st.tuples(st.just("reopen"), st.just(0), st.just(b"")),
)


@given(st.lists(_CHANGES, max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_is_what_was_written(point: Path, changes: list[tuple[str, int, bytes]]) -> None:
    """Writes, truncates and reads in any order, as fsx does."""
    path, model = point / "u/fsx", bytearray()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    for change, at, data in changes:
        if change == "write":
            assert os.pwrite(fd, data, at) == len(data)
            model.extend(bytes(max(0, at + len(data) - len(model))))
            model[at : at + len(data)] = data
        elif change == "cut":
            os.ftruncate(fd, at)
            model[:] = model[:at] + bytes(max(0, at - len(model)))
        elif change == "read":
            assert os.pread(fd, 3000, at) == model[at : at + 3000]
        else:
            os.close(fd)
            fd = os.open(path, os.O_RDWR)
        assert os.fstat(fd).st_size == path.stat().st_size == len(model)
    os.close(fd)
    assert path.read_bytes() == model
    os.unlink(path)


# -- what hostile names can do ------------------------------------------------------------------

_NAMES = st.binary(min_size=1, max_size=300).map(lambda name: name.replace(b"/", b"%2F"))
_PARTS = st.sampled_from(
    (b"..", b"0", b"offset", b"key", b"%2F", b"%00", b"\n", b"kafkafs: FAULT: x", b"t-0", b".swp")
)
_HOSTILE = st.one_of(_NAMES, st.lists(_PARTS, min_size=1, max_size=6).map(b"".join))
_DIRECTORIES = st.sampled_from(
    ("", "t", "t/0", "t/0/offset", "t/0/time", "t/0/key", "t/0/segments", ".kafkafs", "u")
)


def _open(path: bytes, flags: int) -> None:
    os.close(os.open(path, flags, 0o600))


_CALLS: dict[str, Callable[[bytes, bytes], object]] = {
    "stat": lambda path, beside: os.lstat(path),
    "create": lambda path, beside: _open(path, os.O_CREAT | os.O_WRONLY),
    "read": lambda path, beside: _open(path, os.O_RDONLY),
    "mkdir": lambda path, beside: os.mkdir(path),
    "unlink": lambda path, beside: os.unlink(path),
    "rmdir": lambda path, beside: os.rmdir(path),
    "rename": os.rename,
    "onto": lambda path, beside: os.rename(beside, path),
    "symlink": lambda path, beside: os.symlink(b"../../../etc/passwd", path),
}


_EXPECTED = {
    *(0, errno.ENOENT, errno.EPERM, errno.EINVAL, errno.EEXIST, errno.EISDIR, errno.ENOTDIR),
    *(errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.EBUSY, errno.ENOSPC, errno.EXDEV, errno.EFBIG),
}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(_CALLS)),
            _DIRECTORIES,
            _HOSTILE.filter(lambda name: b"\0" not in name),
        )
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_hostile_names(point: Path, calls: list[tuple[str, str, bytes]]) -> None:
    for verb, directory, name in calls:
        if name in (b".", b"..") or not name:
            continue
        path = os.path.join(os.fsencode(point / directory), name)
        beside = os.path.join(os.fsencode(point / directory), b"beside")
        assert errno_of(_CALLS[verb], path, beside) in _EXPECTED
    _clear(point)


def _clear(point: Path) -> None:
    """Removes what the calls created: editors' files, then topics without records."""
    for topic in os.listdir(os.fsencode(point)):
        directory = os.path.join(os.fsencode(point), topic)
        for name in os.listdir(directory) if topic != b".kafkafs" else []:
            if not name.isdigit() and name != b"config.properties":
                os.unlink(os.path.join(directory, name))
        if topic not in (b"t", b"u", b".kafkafs"):
            os.rmdir(directory)


@given(st.lists(st.one_of(st.binary(max_size=200), _HOSTILE), max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_hostile_text(point: Path, lines: list[bytes]) -> None:
    """Writes lines that are not JSON, verbs or configs to files that expect such."""
    text = b"\n".join(lines) + b"\n"
    for path in (point / "u/config.properties", point / ".kafkafs/control"):
        if path.exists():
            fd = os.open(path, os.O_WRONLY)
            found = {errno_of(os.write, fd, text), errno_of(os.close, fd)}
            assert found <= {0, errno.EINVAL, errno.EFBIG, errno.EPERM}


def test_hostile_names_have_left_nothing(shared: Mount, place: Path) -> None:
    """Nothing was created outside the topics, and each message is still a separate line."""
    assert shared.daemon.poll() is None
    assert (shared.point / "t/config.properties").exists()
    assert set(os.listdir(place)) <= {"data", "mnt", "log", "closed", "outside"}
    kept = {name for name in os.listdir(place / "data") if not name.endswith("-delete")}
    assert {"t-0", "u-0"} <= {name for name in kept if os.path.isdir(place / "data" / name)}
    assert all(not os.path.isdir(place / "data" / name) for name in kept - {"t-0", "u-0"})
    for line in shared.log.read_text(encoding="utf-8").splitlines():
        assert line.startswith(("kafkafs: INFO: ", "kafkafs: DEBUG: ")), line
        assert line.isprintable()
        assert len(line) < 4096
    assert shared.memory_kb("VmHWM") < 512 << 10
