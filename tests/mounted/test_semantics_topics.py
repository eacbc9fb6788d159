"""The promises of SEMANTICS.md about topics and configs on writable mounts, one by one."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.building import BatchFields, build_batch
from tests.mounted.conftest import Mounting
from tests.mounted.conversing import ask, conversation
from tests.mounted.mounting import Mount, errno_of, mounted, sh
from tests.mounted.promises import promise
from tests.waiting import wait_until

_EDITED = "retention.ms=7000\nsegment.bytes=2097152\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory shared by nearly all tests; each uses its own topics."""
    return tmp_path_factory.mktemp("topics") / "data"


@pytest.fixture(scope="module")
def shared(data: Path) -> Iterator[Mount]:
    """A writable mount of it."""
    with mounted([_made(data)], data.parent, "writable") as mount:
        yield mount


@pytest.fixture
def topic(shared: Mount) -> Path:
    """The directory of a topic with three records and two configs."""
    path = shared.point / f"t{len(os.listdir(shared.point))}"
    path.mkdir()
    (path / "0/append").write_bytes(b"a\nb\nc\n")
    (path / "config.properties").write_text("retention.ms=5000\nsegment.bytes=2097152\n")
    return path


@pytest.fixture
def other(topic: Path) -> Path:
    """The directory of another topic, which is empty."""
    path = topic.with_name(f"{topic.name}-other")
    path.mkdir()
    return path


def _made(data: Path, *topics: str) -> Path:
    """Returns a log directory with empty topics."""
    with LogManager(str(data)) as engine:
        for topic in topics:
            engine.create_topic(topic)
    return data


def settings_of(data: Path, topic: Path) -> dict[str, str]:
    """Returns the topic's configs as the engine reads them from disk."""
    return Engine(str(data)).topic_config(topic.name).changed


def refusals(mount: Mount) -> list[str]:
    return [line.partition("refused: ")[2] for line in mount.lines("INFO") if "refused: " in line]


def closing(path: Path, text: str, flags: int = os.O_TRUNC) -> int:
    """Writes `text` to a file; returns the errno of close, or 0."""
    fd = os.open(path, os.O_WRONLY | flags)
    os.write(fd, text.encode())
    return errno_of(os.close, fd)


# -- topics -------------------------------------------------------------------------------------


@promise(
    "`mkdir T` creates a topic with partition 0; a name that no topic can have is EINVAL, and one"
    " that differs from another topic's only in `.` and `_` is EEXIST."
)
def test_mkdir_of_a_topic(data: Path, shared: Mount, topic: Path) -> None:
    point, there = shared.point, set(os.listdir(shared.point))
    os.mkdir(point / "a.b")
    assert os.listdir(point / "a.b") == ["0", "config.properties"]
    assert (point / "a.b/config.properties").read_bytes() == b""
    assert (data / "a.b-0").is_dir()
    (point / "a.b/0/append").write_bytes(b"x\n")
    assert (point / "a.b/0/offset/0").read_bytes() == b"x"
    sh("mkdir -p p/0 p/1 && mkdir -p p/1", point)
    assert sorted(os.listdir(point / "p")) == ["0", "1", "config.properties"]
    for name in ("x y", "x:y", "é", "x\n", "t" * 250, "%41", "__cluster_metadata"):
        assert errno_of(os.mkdir, point / name) == errno.EINVAL, name
    os.mkdir(point / ("t" * 249))
    for name in ("a.b", "a_b", topic.name):
        assert errno_of(os.mkdir, point / name) == errno.EEXIST, name
    assert errno_of(os.mkdir, point / "no" / "0") == errno.ENOENT
    assert set(os.listdir(point)) == {*there, "a.b", "p", "t" * 249}


@promise(
    "`mkdir T/N` creates the topic's next partition; any other number is EINVAL, an existing one"
    " EEXIST, and a name that is not a number EPERM."
)
def test_mkdir_of_a_partition(data: Path, topic: Path) -> None:
    os.mkdir(topic / "1")
    assert sorted(os.listdir(topic)) == ["0", "1", "config.properties"]
    assert (topic / "1" / "values").read_bytes() == b""
    assert (data / f"{topic.name}-1" / "partition.metadata").exists()
    for name in ("3", "02", "2147483648", "9" * 200):
        assert errno_of(os.mkdir, topic / name) == errno.EINVAL, name
    for name in ("0", "1", "config.properties"):
        assert errno_of(os.mkdir, topic / name) == errno.EEXIST, name
    for name in ("x", "-1", "1 ", "٢"):
        assert errno_of(os.mkdir, topic / name) == errno.EPERM, name
    assert sorted(os.listdir(topic)) == ["0", "1", "config.properties"]


@promise(
    "`rmdir T` deletes a topic, and it disappears at once for every process; while a partition of"
    " it has a record, an open transaction or damage, it is ENOTEMPTY."
)
def test_rmdir_of_a_topic(data: Path, shared: Mount, topic: Path) -> None:
    assert errno_of(os.rmdir, topic) == errno.ENOTEMPTY
    assert f"{topic.name}/0 has records" in refusals(shared)
    os.mkdir(topic / "1")
    os.unlink(topic / "0/offset/2")
    looked = subprocess.Popen(
        ["bash", "-c", 'while [ -e "$PWD/config.properties" ]; do :; done; ls "$PWD"; ls 0'],
        cwd=topic,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    os.rmdir(topic)
    assert topic.name not in os.listdir(shared.point)
    assert errno_of(os.stat, topic) == errno.ENOENT
    assert errno_of(os.rmdir, topic) == errno.ENOENT
    assert looked.communicate()[1].count(b"No such file or directory") == 2
    assert not (data / f"{topic.name}-0").exists()
    assert not (data / f"{topic.name}-1").exists()
    assert f"[{topic.name}]" not in (data / "kafkafs.topics").read_text()


def test_rmdir_leaves_what_nobody_sees(tmp_path: Path, mount: Mounting) -> None:
    """An open transaction may still be committed; damage may be repaired."""
    data = tmp_path / "data"
    with LogManager(str(data)) as engine:
        for topic in ("open", "damaged"):
            engine.create_topic(topic)
        batch = build_batch(
            [SimpleRecord(1_700_000_000_000, None, b"x")],
            BatchFields(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True),
        )
        engine.writer("open", 0).append(bytearray(batch))
        engine.writer("damaged", 0).append_records(RecordColumns.from_values([b"x", b"y"]))
    log = data / "damaged-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    mounted = mount(data, "writable")
    mounted.expects_warnings = True
    for topic in ("open", "damaged"):
        assert errno_of(os.rmdir, mounted.point / topic) == errno.ENOTEMPTY, topic
        assert (data / f"{topic}-0").is_dir()


@promise(
    "What is appended while a topic is removed is never lost: either the topic is kept, or the"
    " append is refused."
)
def test_rmdir_races_with_appends(shared: Mount) -> None:
    point = shared.point
    kept = removed = 0
    for number in range(40):
        topic = point / f"raced-{number}"
        os.mkdir(topic)
        begin = threading.Barrier(2)
        appended: list[bool] = []

        def append(
            topic: Path = topic,
            begin: threading.Barrier = begin,
            appended: list[bool] = appended,
            number: int = number,
        ) -> None:
            begin.wait()
            if number % 2:
                os.stat(topic.parent)  # a little later
            with suppress(FileNotFoundError), (topic / "0/append").open("ab", buffering=0) as file:
                file.write(b"x\n")
                appended.append(True)

        thread = threading.Thread(target=append)
        thread.start()
        begin.wait()
        outcome = errno_of(os.rmdir, topic)
        thread.join()
        assert outcome in (0, errno.ENOTEMPTY)
        if appended:
            assert outcome == errno.ENOTEMPTY
            assert (topic / "0/values").read_bytes() == b"x\n"
            kept += 1
        else:
            removed += 1
    assert kept + removed == 40


@promise(
    "A topic that was removed and is created again is new: it has none of the old one's records"
    " and configs. In the old one's directory, if a program still has it open, every name is"
    " ENOENT or ESTALE; a name that another program uses at that moment may be found for as long"
    " as the kernel caches names."
)
def test_a_topic_made_again(topic: Path) -> None:
    """The kernel returns ENOENT by itself for names in a directory that was removed by rmdir(2). If
    it has looked the directory up again in between, it has two entries for it, and asks the daemon
    about names in the other one. ESTALE is the right answer then: it makes the kernel resolve the
    path from its beginning, where the new topic is."""
    gone = (errno.ENOENT, errno.ESTALE)
    old = os.open(topic, os.O_DIRECTORY)
    settings = os.open(topic / "config.properties", os.O_WRONLY)
    os.write(settings, b"retention.ms=1\n#")
    (topic / "config.properties~").write_bytes(b"an editor's")
    os.unlink(topic / "config.properties~")
    inode = os.stat(topic).st_ino
    os.unlink(topic / "0/offset/2")
    os.rmdir(topic)
    os.mkdir(topic)
    assert os.stat(topic).st_ino != inode
    assert os.listdir(topic) == ["0", "config.properties"]
    assert (topic / "0/values").read_bytes() == b""
    assert errno_of(os.close, settings) == errno.ENOENT
    assert (topic / "config.properties").read_bytes() == b""
    (topic / "0/append").write_bytes(b"new\n")
    assert os.listdir(topic / "0/offset") == ["first", "last", "0"]
    for name in ("0", "config.properties", "0/values", "x"):
        assert errno_of(os.stat, f"/proc/self/fd/{old}/{name}") in gone
    assert errno_of(os.mkdir, f"/proc/self/fd/{old}/1") in gone
    assert errno_of(os.open, f"/proc/self/fd/{old}/x", os.O_CREAT | os.O_WRONLY) in gone
    os.close(old)


@promise(
    "Neither `.kafkafs` nor `__cluster_metadata` can be removed, nothing can be created in them,"
    " and their `config.properties` cannot be changed: EPERM."
)
def test_what_is_not_for_changing(writable_corpus: Callable[[str], Path], mount: Mounting) -> None:
    point = mount(writable_corpus("kafka43-clean"), "writable").point
    quorum = point / "__cluster_metadata"
    for path in (point / ".kafkafs", quorum):
        assert errno_of(os.rmdir, path) == errno.EPERM, path
    assert errno_of(os.rmdir, quorum / "0") in (errno.EPERM, errno.ENOTEMPTY)
    assert errno_of(os.mkdir, quorum / "1") == errno.EPERM
    assert errno_of(os.mkdir, point / ".kafkafs/x") == errno.EPERM
    for path in (point / ".kafkafs/config.properties", quorum / "config.properties"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o444
        assert errno_of(path.write_text, "retention.ms=1\n") == errno.EPERM
        assert errno_of(os.open, path, os.O_RDWR) == errno.EPERM
        assert errno_of(os.truncate, path, 0) == errno.EPERM
        assert errno_of(os.unlink, path) == errno.EPERM
        assert errno_of(os.rename, path, path.with_name("x")) == errno.EPERM
        assert errno_of(os.open, path.with_name("x"), os.O_CREAT | os.O_WRONLY) == errno.EPERM
        assert errno_of(os.rename, point / "orders/config.properties", path) == errno.EPERM
    assert (point / "orders/0/values").read_bytes()


# -- settings -----------------------------------------------------------------------------------


@promise(
    "`config.properties` can be written in place: its content when a program closes it, or calls"
    " fsync, becomes the topic's configs."
)
def test_written_in_place(data: Path, topic: Path) -> None:
    path = topic / "config.properties"
    sh("echo retention.ms=6000 >> config.properties", topic)
    assert path.read_text() == "retention.ms=6000\nsegment.bytes=2097152\n"
    sh("echo retention.ms=6500 > config.properties", topic)
    assert path.read_text() == "retention.ms=6500\n"
    assert settings_of(data, topic) == {"retention.ms": "6500"}
    with path.open("r+") as file:
        assert file.read() == "retention.ms=6500\n"
        file.seek(0, os.SEEK_END)
        file.write("segment.bytes=2097152\n")
        file.seek(13)
        file.write("7000")
    assert path.read_text() == _EDITED
    with path.open("a") as file:
        file.write("cleanup.policy=compact\n")
        file.flush()
        os.fsync(file.fileno())
        assert settings_of(data, topic)["cleanup.policy"] == "compact"
    os.truncate(path, len("cleanup.policy=compact\n"))
    assert settings_of(data, topic) == {"cleanup.policy": "compact"}


@promise(
    "It is read as Java reads `.properties`; the last of several lines with the same name counts,"
    " and comments are not kept."
)
def test_the_form(data: Path, topic: Path) -> None:
    path = topic / "config.properties"
    text = (
        "# mine\r\n! too\nretention.ms = 1\n\nretention.ms:70\\\n   00\nsegment\\u002ebytes 2097152"
    )
    path.write_text(text)
    assert path.read_text() == _EDITED
    assert settings_of(data, topic) == {"retention.ms": "7000", "segment.bytes": "2097152"}


@promise(
    "A config that no topic has, a value that Kafka would reject, configs that contradict each"
    " other and a line without a value are EINVAL at close and fsync; nothing is changed then, and"
    " the mount's log names topic, line and reason."
)
def test_what_is_refused(data: Path, shared: Mount, topic: Path) -> None:
    path = topic / "config.properties"
    before, stored = path.read_bytes(), (data / "kafkafs.topics").read_bytes()
    for text, reason in (
        ("retention.mss=1", "line 1: retention.mss: no such config; did you mean retention.ms"),
        (
            "#\n\nretention.ms=x",
            "line 3: retention.ms: must be a whole number, at least -1 (got 'x')",
        ),
        (
            "segment.bytes=1",
            "line 1: segment.bytes: must be a whole number, at least 1048576 (got '1')",
        ),
        (
            "max.compaction.lag.ms=1\nmin.compaction.lag.ms=2",
            "line 2: min.compaction.lag.ms: 2 is greater than max.compaction.lag.ms (1)",
        ),
        ("retention.ms=1\nretention.bytes", "line 2: retention.bytes: no value"),
        ("\nretention.ms=\\u12", "line 2: \\u without four hexadecimal digits"),
        ("\x1b[31m\0=1", "line 1: \\x1b[31m\\x00: no such config"),
        ("r" * 100_000 + "=1", "line 1: rrrrrrr"),
    ):
        assert closing(path, text) == errno.EINVAL, text
        assert any(
            line.startswith(f"{path.relative_to(shared.point)}, {reason}")
            for line in refusals(shared)
        )
        assert path.read_bytes() == before
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"bad=1\n")
    assert errno_of(os.fsync, fd) == errno.EINVAL
    assert errno_of(os.close, fd) == errno.EINVAL
    assert path.read_bytes() == before
    assert errno_of(os.truncate, path, 8) == errno.EINVAL
    assert path.read_bytes() == before
    assert (data / "kafkafs.topics").read_bytes() == stored
    assert max(map(len, shared.log.read_text().splitlines())) < 500


@promise(
    "A line with the value that is in effect already changes nothing, whatever its source; any"
    " other value becomes the topic's own config in `kafkafs.topics`.",
    "Removing a line removes the topic's own config: `-c`, the cluster's metadata or Kafka's"
    " default takes effect, and if one of the first two has a value, the line reappears.",
    "What was given with `-c` under the topic's name for it cannot get another value while the"
    " mount exists: EINVAL.",
)
def test_where_settings_come_from(writable_corpus: Callable[[str], Path], mount: Mounting) -> None:
    data = writable_corpus("kafka43-clean")
    settings = {"flush.messages": "5", "log.retention.bytes": "77"}
    mounted = mount(data, "writable", settings)
    path = mounted.point / "orders/config.properties"
    before = path.read_text()
    lines = dict(line.split("=") for line in before.splitlines())
    of_cluster = next(name for name in lines if name in ("segment.ms", "internal.segment.bytes"))
    assert (lines["flush.messages"], lines["retention.bytes"]) == ("5", "77")
    file = data / "kafkafs.topics"
    path.write_text(before.replace("=", " = "))
    assert not file.exists()
    assert path.read_text() == before

    value = str(int(lines[of_cluster]) + 1)
    changed = before.replace(f"{of_cluster}={lines[of_cluster]}", f"{of_cluster}={value}")
    path.write_text(changed.replace("retention.bytes=77", "retention.bytes=78"))
    assert dict(line.split("=") for line in path.read_text().splitlines()) == {
        **lines,
        of_cluster: value,
        "retention.bytes": "78",
    }
    own = file.read_text().partition("[orders]\n")[2]
    assert own == "".join(sorted((f"{of_cluster} = {value}\n", "retention.bytes = 78\n")))

    assert closing(path, before.replace("flush.messages=5", "flush.messages=6")) == errno.EINVAL
    assert any("flush.messages: was set with -c" in line for line in refusals(mounted))
    assert "retention.bytes = 78" in file.read_text()
    path.write_text("\n")
    assert path.read_text() == before
    assert "[orders]" not in file.read_text()


@promise(
    "What was written and is not closed yet is read by everybody as it was written; after the"
    " close, the file is as in 8.3, and the size in `stat` is always exact."
)
def test_while_it_is_open(topic: Path) -> None:
    path = topic / "config.properties"
    assert path.stat().st_size == len(path.read_bytes()) > 0
    first, second = os.open(path, os.O_RDWR | os.O_APPEND), os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(first, b"# one\nretention.bytes=1\n")
    os.write(second, b"flush.ms=10")
    assert path.read_bytes().endswith(b"# one\nretention.bytes=1\nflush.ms=10")
    assert path.stat().st_size == len(path.read_bytes()) == os.fstat(first).st_size
    assert os.pread(first, 5, path.stat().st_size - 11) == b"flush"
    assert os.pread(first, 5, 1 << 20) == b""
    os.close(first)
    expected = "flush.ms=10\nretention.bytes=1\nretention.ms=5000\nsegment.bytes=2097152\n"
    assert path.read_text() == expected
    os.write(second, b"0")
    assert path.read_bytes().endswith(b"# one\nretention.bytes=1\nflush.ms=100")
    os.close(second)
    expected = expected.replace("=10", "=100", 1)
    assert path.read_text() == expected
    assert path.stat().st_size == len(expected)


@promise("A truncation without a write takes effect when the last writer has closed the file.")
def test_emptied(data: Path, topic: Path) -> None:
    path = topic / "config.properties"
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.close(os.dup(fd))
    assert path.read_bytes() == b""
    assert settings_of(data, topic) == {"retention.ms": "5000", "segment.bytes": "2097152"}
    os.close(fd)
    wait_until(lambda: settings_of(data, topic) == {})
    assert path.read_bytes() == b""


@promise(
    "Another file can be renamed onto it, which has the same effect as writing and closing it; if"
    " that is EINVAL, both files are unchanged."
)
def test_replaced(data: Path, shared: Mount, topic: Path, other: Path) -> None:
    path = topic / "config.properties"
    new = path.with_name(".new")
    new.write_text(_EDITED)
    os.chmod(new, 0o640)
    os.rename(new, path)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == (_EDITED, 0o640)
    assert settings_of(data, topic) == {"retention.ms": "7000", "segment.bytes": "2097152"}
    assert not new.exists()
    new.write_text("retention.ms=soon")
    assert errno_of(os.rename, new, path) == errno.EINVAL
    assert (path.read_text(), new.read_text()) == (_EDITED, "retention.ms=soon")
    assert any(f"{topic.name}/config.properties, line 1" in line for line in refusals(shared))
    elsewhere = other / "x"
    elsewhere.write_text("retention.ms=9\n")
    os.rename(elsewhere, path)
    assert path.read_text() == "retention.ms=9\n"
    assert os.listdir(other) == ["0", "config.properties"]


def while_absent(path: Path, steps: Callable[[], None]) -> None:
    """Takes `steps`, which remove `path`. It is absent for a second: if the machine took longer,
    they are repeated."""
    while True:
        began = time.monotonic()
        try:
            steps()
        except (AssertionError, FileExistsError):
            if time.monotonic() - began < 1:
                raise
            wait_until(path.exists)
        else:
            return


@promise(
    "It can be removed and renamed, as editors and `install` do before they create it again; that"
    " changes no config, and the name is ENOENT until it is created, for a second at most."
)
def test_removed(data: Path, topic: Path) -> None:
    path = topic / "config.properties"
    before = path.read_text()

    def unlink() -> None:
        os.unlink(path)
        assert errno_of(os.stat, path) == errno.ENOENT
        assert os.listdir(path.parent) == ["0"]

    def rename_and_create() -> None:
        os.rename(path, path.with_name("backup~"))
        assert errno_of(os.stat, path) == errno.ENOENT
        assert path.with_name("backup~").read_text() == before
        assert settings_of(data, topic)["retention.ms"] == "5000"
        with path.open("x") as file:
            file.write(_EDITED)

    while_absent(path, unlink)
    wait_until(path.exists)
    assert path.read_text() == before
    while_absent(path, rename_and_create)
    assert path.read_text() == _EDITED
    assert errno_of(os.open, path, os.O_CREAT | os.O_EXCL | os.O_WRONLY) == errno.EEXIST
    os.rename(path.with_name("backup~"), path)
    assert path.read_text() == before
    assert sorted(os.listdir(path.parent)) == ["0", "config.properties"]


@promise("Its mode and its modification time can be set, and are kept as long as the mount exists.")
def test_mode_and_time(topic: Path) -> None:
    path = topic / "config.properties"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    os.chmod(path, 0o600)
    os.utime(path, ns=(0, 1_500_000_000_123_456_789))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_mtime_ns == 1_500_000_000_123_456_789
    path.write_text(_EDITED)
    assert path.stat().st_mtime > 1_600_000_000


# -- files of editors ---------------------------------------------------------------------------


@promise(
    "Programs can create files of their own beside it, as editors do: these are in memory, are"
    " listed, can be read, written and truncated anywhere, have modes and times, can be renamed,"
    " and disappear when they are removed and closed, or when the mount ends."
)
def test_files_of_editors(data: Path, topic: Path, other: Path) -> None:
    before = sorted(os.listdir(data)), sorted(os.listdir(data / f"{topic.name}-0"))
    fd = os.open(topic / ".x.swp", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
    assert errno_of(os.open, topic / ".x.swp", os.O_CREAT | os.O_EXCL) == errno.EEXIST
    assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o640
    os.pwrite(fd, b"end", 4096)
    os.pwrite(fd, b"begin", 0)
    os.ftruncate(fd, 4098)
    assert (topic / ".x.swp").read_bytes() == b"begin" + bytes(4091) + b"en"
    assert sorted(os.listdir(topic)) == [".x.swp", "0", "config.properties"]
    os.chmod(topic / ".x.swp", 0o604)
    os.utime(topic / ".x.swp", ns=(0, 1_000_000_007))
    assert os.fstat(fd).st_mtime_ns == 1_000_000_007
    assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o604
    (topic / "other").write_bytes(b"other")
    os.rename(topic / ".x.swp", topic / "other")
    assert (topic / "other").stat().st_ino == os.fstat(fd).st_ino
    assert sorted(os.listdir(topic)) == ["0", "config.properties", "other"]
    os.rename(topic / "other", other / "moved")
    assert os.pread(fd, 5, 0) == b"begin"
    os.unlink(other / "moved")
    assert os.fstat(fd).st_size == 4098
    os.pwrite(fd, b"still", 0)
    assert os.pread(fd, 5, 0) == b"still"
    os.close(fd)
    assert (sorted(os.listdir(data)), sorted(os.listdir(data / f"{topic.name}-0"))) == before


@promise(
    "Such a file has at most 1 MiB, otherwise EFBIG; there are at most 32 in a topic and 16 MiB in"
    " total, each counted as at least 4 KiB, otherwise ENOSPC; and while there is one, `rmdir T`"
    " is ENOTEMPTY."
)
def test_files_of_editors_are_bounded(tmp_path: Path, mount: Mounting) -> None:
    mounted, mib = mount(_made(tmp_path / "data", "t", "other"), "writable"), bytes(1 << 20)
    topic, other = mounted.point / "t", mounted.point / "other"
    for directory, count in ((topic, 32), (other, 8)):
        for number in range(count):
            (directory / f"f{number}").touch()
    assert errno_of((topic / "one-more").touch) == errno.ENOSPC
    assert errno_of(os.rename, other / "f0", topic / "one-more") == errno.ENOSPC
    for number in range(15):
        (topic / f"f{number}").write_bytes(mib)
    fd = os.open(topic / "f0", os.O_WRONLY)
    assert errno_of(os.pwrite, fd, b"x", 1 << 20) == errno.EFBIG
    assert errno_of(os.pwrite, fd, b"x", 1 << 40) == errno.EFBIG
    assert errno_of(os.ftruncate, fd, (1 << 20) + 1) == errno.EFBIG
    os.close(fd)
    assert errno_of(os.truncate, topic / "f20", 1 << 20) == errno.ENOSPC
    os.truncate(topic / "f20", (1 << 20) - 24 * 4096)
    assert errno_of((other / "g").touch) == errno.ENOSPC
    os.unlink(topic / "f0")
    (other / "g").write_bytes(mib)
    assert (topic / "f1").read_bytes() == mib
    assert closing(topic / "config.properties", "#" * (1 << 20)) == 0
    fd = os.open(topic / "config.properties", os.O_WRONLY)
    assert errno_of(os.pwrite, fd, b"x", 1 << 20) == errno.EFBIG
    os.close(fd)
    assert errno_of(os.rmdir, other) == errno.ENOTEMPTY
    sh("rm other/[fg]*; rmdir other", mounted.point)
    assert mounted.end() == 0
    topic = mount(tmp_path / "data", "writable").point / "t"
    assert sorted(os.listdir(topic)) == ["0", "config.properties"]


@promise(
    "No such file has a name that consists of digits, which is reserved for a partition, and none"
    " can be created in another directory: EPERM."
)
def test_where_no_files_are_made(shared: Mount, topic: Path) -> None:
    point = shared.point
    (topic / "x").touch()
    for name in ("1", "4913", "007", "9" * 255):
        assert errno_of((topic / name).touch) == errno.EPERM, name
        assert errno_of(os.rename, topic / "x", topic / name) == errno.EPERM, name
    inner = [topic / "0" / name for name in ("", "offset", "segments", "time")]
    for directory in (point, point / ".kafkafs", *inner):
        assert errno_of((directory / "x").touch) == errno.EPERM, directory
        assert errno_of(os.rename, topic / "x", directory / "x") == errno.EPERM, directory
    assert errno_of(os.rename, topic / "0", topic / "x0") == errno.EPERM
    assert errno_of(os.rename, topic, point / "u") == errno.EPERM
    assert sorted(os.listdir(topic)) == ["0", "config.properties", "x"]


@promise(
    "Symbolic links, hard links and devices cannot be created, and topics and the files in their"
    " directories cannot have another owner than everything else: EPERM; extended attributes"
    " cannot be set: ENOTSUP."
)
def test_links_devices_owners_attributes(shared: Mount, topic: Path) -> None:
    (topic / "x").touch()
    for directory in (shared.point, topic, topic / "0", topic / "0/offset"):
        assert errno_of(os.symlink, "x", directory / "link") == errno.EPERM
        assert errno_of(os.mkfifo, directory / "pipe") == errno.EPERM
        device = os.makedev(1, 3)
        assert errno_of(os.mknod, directory / "null", 0o600 | stat.S_IFCHR, device) == errno.EPERM
        assert errno_of(os.link, topic / "x", directory / "hard") == errno.EPERM
    for path in (topic, topic / "x", topic / "config.properties", topic / "0/values"):
        assert errno_of(os.chown, path, 65534, -1) == errno.EPERM
        assert errno_of(os.chown, path, -1, 65534) == errno.EPERM
        assert errno_of(os.setxattr, path, "user.x", b"1") == errno.ENOTSUP
        assert errno_of(os.removexattr, path, "user.x") == errno.ENOTSUP
    os.chown(topic / "x", os.getuid(), os.getgid())


# -- programs -----------------------------------------------------------------------------------

_REPLACED = "s/retention.ms=.*/retention.ms=7000/"
_VIM = shutil.which("vim") or "vim.tiny"
_WITH_VIM = f"{_VIM} -es -u NONE -i NONE -c '%{_REPLACED}' -c wq config.properties"
_EDITORS = {
    "sed -i": f"sed -i {_REPLACED} config.properties",
    "sed -i.bak": f"sed -i.bak {_REPLACED} config.properties",
    "perl -i": f"perl -i -pe {_REPLACED} config.properties",
    "perl -i.bak": f"perl -i.bak -pe {_REPLACED} config.properties",
    **{
        f"vim {choice}": f"{_WITH_VIM} --cmd 'set {choice}'"
        for choice in (
            *("backupcopy=yes", "backupcopy=no", "backupcopy=auto", "nowritebackup"),
            *("backup backupcopy=no", "nofsync", "directory=. swapfile updatecount=1"),
        )
    },
    "cp": "cp $EDITED config.properties",
    "cp -p": "cp -p $EDITED config.properties",
    "cp --remove-destination": "cp --remove-destination $EDITED config.properties",
    "cp -b": "cp -b $EDITED config.properties",
    "mv": "mv $EDITED config.properties",
    "install": "install $EDITED config.properties",
    "install -m": "install -b -m 644 $EDITED config.properties",
    "tee": "tee config.properties < $EDITED > $EDITED.2",
    "dd": "dd of=config.properties if=$EDITED bs=7 conv=fsync",
}


@pytest.mark.parametrize("editor", _EDITORS)
def test_any_editor(data: Path, topic: Path, tmp_path: Path, editor: str) -> None:
    edited = tmp_path / "edited"
    edited.write_text(_EDITED)
    sh(f"EDITED={edited}; {_EDITORS[editor]}", topic)
    wait_until(lambda: (topic / "config.properties").read_text() == _EDITED)
    assert settings_of(data, topic) == {"retention.ms": "7000", "segment.bytes": "2097152"}
    left = set(os.listdir(topic)) - {"0", "config.properties"}
    assert all(name.endswith(("~", ".bak")) for name in left)


def _come_and_go(point: Path, number: int, rounds: int) -> None:
    """Creates, reads and removes a topic that other processes create and remove at the same
    time."""
    topic = point / "shared"
    allowed = {errno.EEXIST, errno.ENOENT, errno.ENOTEMPTY, errno.EINVAL, errno.ESTALE}
    for at in range(rounds):
        calls: list[tuple[Callable[..., object], tuple[object, ...]]] = [
            (os.mkdir, (topic,)),
            (os.listdir, (topic,)),
            (os.stat, (topic / "0" / "values",)),
            (os.mkdir, (topic / "1",)),
            ((topic / "config.properties").write_text, (f"retention.ms={at}\n",)),
            ((topic / f"scratch-{number}").touch, ()),
            ((topic / f"scratch-{number}").unlink, ()),
            (os.rmdir, (topic,)),
        ]
        for call, arguments in calls:
            found = errno_of(call, *arguments)
            assert found == 0 or found in allowed, (call, os.strerror(found))


def test_topics_come_and_go_under_many_processes(tmp_path: Path, mount: Mounting) -> None:
    mounted = mount(_made(tmp_path / "data", "t"), "writable")
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=_come_and_go, args=(mounted.point, number, 10))
        for number in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    with suppress(FileNotFoundError):
        for path in (mounted.point / "shared").glob("scratch-*"):
            path.unlink()
        os.rmdir(mounted.point / "shared")
    assert set(os.listdir(mounted.point)) == {".kafkafs", "t"}
    assert mounted.end() == 0
    with LogManager(str(tmp_path / "data")) as engine:
        assert list(engine.topics()) == ["t"]
        assert not engine.problems


@promise(
    "In the directories of a KRaft cluster, `mkdir` creates neither a topic nor a partition that"
    " the cluster does not know: EPERM, and the reason is in the log. With `-o unregistered` it"
    " does. So does `create-topic` of `.kafkafs/control`, if its field `unregistered` is true."
)
def test_a_cluster_that_does_not_know_the_topic(
    writable_corpus: Callable[[str], Path], mount: Mounting
) -> None:
    data = writable_corpus("kafka43-clean")
    with_cluster = mount(data, "writable")
    before = sorted(path.name for path in data.iterdir())
    count = len([name for name in os.listdir(with_cluster.point / "orders") if name.isdigit()])
    for path in (with_cluster.point / "new", with_cluster.point / "orders" / str(count)):
        assert errno_of(os.mkdir, path) == errno.EPERM
    assert sorted(path.name for path in data.iterdir()) == before
    log = (with_cluster.point / ".kafkafs/log").read_text()
    assert "belongs to a KRaft cluster" in log
    # Also if another directory of that broker has the cluster's metadata.
    second = mount(writable_corpus("kafka43-two-dirs") / "dir2", "writable").point
    assert errno_of(os.mkdir, second / "new") == errno.EPERM
    for field in ("", ', "unregistered": false'):
        (refused,) = ask(with_cluster.point, f'create-topic {{"topic": "new"{field}}}')
        assert refused["kind"] == "Unregistered"
        assert "belongs to a KRaft cluster" in refused["error"]
    with conversation(with_cluster.point) as handle:
        line = b'create-topic {"topic": "new", "unregistered": "yes"}\n'
        assert errno_of(os.write, handle.fd, line) == errno.EINVAL
    assert sorted(path.name for path in data.iterdir()) == before
    (made,) = ask(with_cluster.point, 'create-topic {"topic": "new", "unregistered": true}')
    assert made["topic"] == "new"
    assert (data / "new-0").is_dir()
    other = writable_corpus("kafka43-crash-recovered")
    anyway = mount(other, "writable,unregistered")
    os.mkdir(anyway.point / "new")
    assert (anyway.point / "new/0/append").exists()


@promise(
    "A stray can be read under the name of its directory, as a topic with that one partition; it"
    " can be opened by name but is not listed."
)
def test_a_stray(writable_corpus: Callable[[str], Path], mount: Mounting) -> None:
    data = writable_corpus("kafka43-clean")
    values = mount(data, "defaults").point / "orders/0/values"
    expected = values.read_bytes()
    name = f"orders-0.{'a' * 32}-stray"
    (data / "orders-0").rename(data / name)
    point = values.parents[2]
    wait_until(lambda: not values.exists())
    assert (point / name / "0/values").read_bytes() == expected != b""
    assert [each for each in os.listdir(point / name) if each.isdigit()] == ["0"]
    assert (point / name / "0/offset/first").read_bytes()
    assert name not in os.listdir(point)
