"""The promises of SEMANTICS.md about streams, following, status and damage, one by one."""

from __future__ import annotations

import base64
import errno
import json
import mmap
import os
import select
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkafs.storage.format.files.properties import parse_properties
from tests import answers
from tests.mounted.conftest import Mounting
from tests.mounted.live import LiveLog, value
from tests.mounted.mounting import errno_of, sh
from tests.mounted.promises import promise
from tests.waiting import PATIENCE_SECONDS, wait_until

CLEAN = "kafka43-clean"
STREAMS = ("values", "keys", "records.jsonl", "records.arrow")


def lines(*offsets: int) -> bytes:
    """Returns what `values` has for the records of a LiveLog."""
    return b"".join(value(offset) + b"\n" for offset in offsets)


# -- 6 Streams ----------------------------------------------------------------------------------


@promise(
    "`values` contains the value of every record served, in order, each followed by a newline; a"
    " null value is an empty line."
)
def test_values(clean: Path) -> None:
    for topic, number in answers.partitions_with_records(CLEAN):
        records = answers.records(CLEAN, topic, number)
        values = b"".join((record.value or b"") + b"\n" for record in records)
        assert (clean / topic / str(number) / "values").read_bytes() == values


@promise(
    "`keys` contains the key of every record served in the same form, so that line K of `keys` and"
    " line K of `values` belong to the same record."
)
def test_keys(clean: Path) -> None:
    for topic, number in answers.partitions_with_records(CLEAN):
        given = answers.records(CLEAN, topic, number)
        keys = b"".join((record.key or b"") + b"\n" for record in given)
        assert (clean / topic / str(number) / "keys").read_bytes() == keys
    where = clean / "orders" / "0"
    pairs = sh("paste -d '|' keys values", where).splitlines()
    records = list(answers.records(CLEAN, "orders", 0))
    assert pairs == [f"{r.key!s}|{r.value!s}".replace("b'", "").replace("'", "") for r in records]


@promise(
    "`records.jsonl` contains one line of JSON for every record served, with `key`, `value`,"
    " `topic`, `partition`, `offset`, `timestamp`, `timestampType` and `headers` in this order."
)
def test_records_jsonl(clean: Path) -> None:
    names = [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]
    for topic in ("orders", "appendtime", "codec-none"):
        records = list(answers.records(CLEAN, topic, 0))
        found = (clean / topic / "0" / "records.jsonl").read_text().split("\n")
        assert found.pop() == ""
        for text, record in zip(found, records, strict=True):
            line = json.loads(text)
            assert list(line) == names
            assert (line["topic"], line["partition"]) == (topic, 0)
            assert (line["offset"], line["timestamp"]) == (record.offset, record.timestamp)
            assert line["timestampType"] == record.timestamp_type


@promise(
    'In JSON, bytes that are UTF-8 are a string, other bytes are `{"base64": …}`, and null is null.'
)
def test_bytes_in_json(clean: Path) -> None:
    kinds = set()
    found = (clean / "codec-none" / "0" / "records.jsonl").read_text().splitlines()
    for text, record in zip(found, answers.records(CLEAN, "codec-none", 0), strict=True):
        line = json.loads(text)
        for shown, data in ((line["key"], record.key), (line["value"], record.value)):
            assert shown == in_json(data)
            kinds.add(type(shown))
    assert kinds == {str, dict, type(None)}


def in_json(data: bytes | None) -> Any:
    try:
        return data if data is None else data.decode()
    except UnicodeDecodeError:
        assert data is not None
        return {"base64": base64.b64encode(data).decode()}


@promise(
    "`records.arrow` is an Arrow IPC stream with the same eight columns, and with its end marked."
)
def test_records_arrow(clean: Path) -> None:
    for topic in ("orders", "codec-none", "empty", "txn"):
        path = clean / topic / "0" / "records.arrow"
        assert path.read_bytes().endswith(b"\xff\xff\xff\xff\0\0\0\0")
        with path.open("rb") as source, pa.ipc.open_stream(source) as reader:
            table = reader.read_all()
        records = list(answers.records(CLEAN, topic, 0))
        assert table["offset"].to_pylist() == [record.offset for record in records]
        assert table["value"].to_pylist() == [record.value for record in records]
        assert table.schema.names == [
            *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
            "headers",
        ]


@promise("The size of a stream is exact in `stat` and `fstat` as soon as it is known.")
def test_size_of_streams(clean: Path, tmp_path: Path) -> None:
    for topic, number in answers.partitions_with_records(CLEAN):
        for name in STREAMS:
            path = clean / topic / str(number) / name
            status = path.stat()
            assert status.st_size == len(path.read_bytes())
            assert status.st_blocks == -(-status.st_size // 512)
    where = clean / "orders" / "1"
    count = len(list(answers.records(CLEAN, "orders", 1)))
    assert sh("wc -l < values", where).strip() == str(count)
    assert sh("grep -c '' keys", where).strip() == str(count)
    assert sh("awk 'END {print NR}' values", where).strip() == str(count)
    assert sh("jq -r .offset records.jsonl | sort -n | tail -1", where).strip() == str(count - 1)
    assert sh("sed -n 3p values; head -3 values | tail -1", where).count("order") == 2
    sh(f"cp values {tmp_path}/copy; cat values | cmp - {tmp_path}/copy", where)
    assert (tmp_path / "copy").read_bytes() == (where / "values").read_bytes()


@promise(
    "An open stream has one size for ever, and so has each of its inode numbers: when the log has"
    " changed, the name leads to another one."
)
def test_a_size_belongs_to_an_inode(live: LiveLog, mount: Mounting) -> None:
    path = mount(live.directory).point / "t" / "0" / "values"
    with path.open("rb", buffering=0) as before:
        first = os.fstat(before.fileno())
        live.append(3)
        with path.open("rb", buffering=0) as after:
            second = os.fstat(after.fileno())
            assert second.st_size == first.st_size + len(lines(6, 7, 8))
            assert second.st_ino != first.st_ino
            for _ in range(3):
                assert os.fstat(before.fileno()).st_size == first.st_size
                assert os.fstat(after.fileno()).st_size == second.st_size
            assert before.read() == lines(*range(6))
            assert after.read() == lines(*range(9))
        assert path.stat().st_ino == second.st_ino
    live.delete_before(4)
    wait_until(lambda: path.read_bytes() == lines(4, 5, 6, 7, 8))
    assert path.stat().st_size == len(lines(4, 5, 6, 7, 8))


@promise(
    "Programs that rely on a file's size get all of a stream whose size is known: it can be"
    " mapped, copied in the kernel and read from its end."
)
@pytest.mark.parametrize("name", STREAMS)
def test_programs_that_go_by_sizes(clean: Path, tmp_path: Path, name: str) -> None:
    path = clean / "orders" / "2" / name
    whole = opened_at_leisure(path)
    assert len(whole) > 100_000 or name == "keys"
    shutil.copy(path, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == whole
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[:] == whole
    where = path.parent
    assert sh(f"tail -c 100 {name} | base64 -w0", where) == base64.b64encode(whole[-100:]).decode()
    assert sh(f"wc -c < {name}", where).strip() == str(len(whole))
    sh(f"tar -cf {tmp_path}/a.tar {name} && tar -xOf {tmp_path}/a.tar | cmp - {name}", where)
    if name != "records.arrow":
        sh(f"tac {name} | tac | cmp - {name}", where)
    if name == STREAMS[0]:  # one copy has all of them
        sh(f"mkdir {tmp_path}/to && cp -r . {tmp_path}/to", where)
        for each in STREAMS:
            sh(f"cmp {each} {tmp_path}/to/{each}", where)


@promise(
    "While the size is unknown, `stat` reports an upper bound, never 0, and the stream can be read"
    " from its beginning at once; it cannot be mapped shared, and a read that begins after its end"
    " is EIO."
)
@pytest.mark.parametrize("name", STREAMS)
def test_sizes_that_are_not_known(
    live: LiveLog, mount: Mounting, tmp_path: Path, name: str
) -> None:
    live.append(100)
    whole = opened_at_leisure(mount(live.directory).point / "t" / "0" / name)
    mounted = mount(live.directory, settings={"kafkafs.size.wait.ms": "0"})
    mounted.expects_warnings = True
    path = mounted.point / "t" / "0" / name
    bound = path.stat().st_size
    assert len(whole) < bound < 200 * len(whole) + (1 << 20)
    file = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="No such device"):
            mmap.mmap(file, 1, prot=mmap.PROT_READ)
        assert os.fstat(file).st_size >= len(whole)
        assert os.pread(file, bound, 0) == whole
        assert os.pread(file, 10, len(whole)) == b""
        with pytest.raises(OSError, match="Input/output"):
            os.pread(file, 10, len(whole) + 1)
        assert any("a read began at byte" in line for line in mounted.lines("WARNING"))
        os.lseek(file, 0, os.SEEK_SET)
        # measured in the background, since the file is open but idle
        wait_until(lambda: os.fstat(file).st_size == len(whole))
    finally:
        os.close(file)
    assert path.stat().st_size == len(whole)
    live.append()
    wait_until(lambda: path.stat().st_size > len(whole))
    shutil.copy(path, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == opened_at_leisure(path)


def opened_at_leisure(path: Path) -> bytes:
    """Returns a file's bytes, read to its end without using its size."""
    file = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(partial(os.read, file, 1 << 20), b""))
    finally:
        os.close(file)


@promise("A stream can be read from any position, forwards and backwards.")
@pytest.mark.parametrize("name", STREAMS)
def test_seeking(clean: Path, name: str) -> None:
    path = clean / "codec-zstd" / "0" / name
    whole = path.read_bytes()
    assert len(whole) > 3000
    file = os.open(path, os.O_RDONLY)
    try:
        for position in (0, len(whole) - 5, 17, len(whole) // 2, len(whole), len(whole) + 9, 3, 0):
            assert os.pread(file, 100, position) == whole[position : position + 100]
    finally:
        os.close(file)
    where = path.parent
    assert sh(f"tail -c 100 {name} | base64 -w0", where) == base64.b64encode(whole[-100:]).decode()
    skipped = sh(f"dd if={name} bs=1000 skip=2 count=1 status=none | base64 -w0", where)
    assert skipped == base64.b64encode(whole[2000:3000]).decode()


@promise("An open stream returns the same bytes however often and in whatever pieces it is read.")
@pytest.mark.parametrize("name", STREAMS)
def test_reading_again(clean: Path, name: str) -> None:
    for topic in ("codec-none", "compacted", "txn"):
        path = clean / topic / "0" / name
        whole = path.read_bytes()
        sh(f"cmp {name} {name}", path.parent)
        with path.open("rb", buffering=0) as file:
            for size in (1 << 20, 4096, 1000, 70_001):
                file.seek(0)
                assert b"".join(iter(partial(file.read, size), b"")) == whole


@promise(
    "An open stream shows the records that were served when it was opened: records appended later"
    " are not in it, and records that retention deletes later still are."
)
@pytest.mark.parametrize("name", ["values", "records.arrow"])
def test_an_open_stream_stays_as_it_is(live: LiveLog, mount: Mounting, name: str) -> None:
    path = mount(live.directory).point / "t" / "0" / name
    whole = path.read_bytes()
    with path.open("rb", buffering=0) as file:
        live.append()
        live.delete_before(4)
        for deleted in live.partition.glob("*.deleted"):
            deleted.unlink()
        offsets = path.parent / "offset"
        wait_until(lambda: not (offsets / "3").exists())
        assert file.read() == whole
        file.seek(0)
        assert file.read() == whole
    if name == "values":
        assert path.read_bytes() == lines(4, 5, 6)


@promise(
    "A read returns as many bytes as were requested, unless the stream ends or damage comes first."
)
def test_full_reads(clean: Path) -> None:
    for name in STREAMS:
        path = clean / "orders" / "2" / name
        whole = path.read_bytes()
        file = os.open(path, os.O_RDONLY)
        try:
            for size in (100_000, 1 << 20, len(whole), 3):
                for position in (0, 5, 70_000):
                    expected = min(size, len(whole) - position)
                    assert len(os.pread(file, size, position)) == expected
        finally:
            os.close(file)


# -- 7 Following --------------------------------------------------------------------------------


class Follower:
    """A thread that reads a followed file."""

    def __init__(self, path: Path) -> None:
        self.data = b""
        self.ended = False
        self._path = path
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._path.open("rb", buffering=0) as file:
            while part := file.read(1 << 16):
                self.data += part
        self.ended = True

    def join(self) -> None:
        self._thread.join(PATIENCE_SECONDS)
        assert self.ended


@pytest.fixture
def follow(live: LiveLog) -> Iterator[Callable[[Path], Follower]]:
    """`follow(path)` reads until the partition is deleted, at the latest at the end of the test."""
    followers: list[Follower] = []

    def start(path: Path) -> Follower:
        followers.append(Follower(path))
        return followers[-1]

    yield start
    if live.partition.exists():
        live.delete()
    for follower in followers:
        follower.join()


def has_read(follower: Follower, whole: bytes) -> bool:
    return follower.data == whole


@promise(
    "`follow` is `values`, and `follow.jsonl` is `records.jsonl`, without an end: at the end, a"
    " read waits for new records."
)
def test_follow(live: LiveLog, mount: Mounting, follow: Callable[[Path], Follower]) -> None:
    where = mount(live.directory).point / "t" / "0"
    followers = {name: follow(where / name) for name in ("follow", "follow.jsonl")}
    for of, name in (("values", "follow"), ("records.jsonl", "follow.jsonl")):
        whole = (where / of).read_bytes()
        wait_until(partial(has_read, followers[name], whole))
    live.append(3)
    for of, name in (("values", "follow"), ("records.jsonl", "follow.jsonl")):
        whole = (where / of).read_bytes()
        wait_until(partial(has_read, followers[name], whole))
        assert not followers[name].ended


@promise(
    "Each record is returned once, in order, within a second of being served, across new segments."
)
def test_each_record_once(
    live: LiveLog, mount: Mounting, follow: Callable[[Path], Follower]
) -> None:
    follower = follow(mount(live.directory).point / "t" / "0" / "follow")
    for turn in range(12):
        live.append(1 + turn % 3)
        if turn % 4 == 3:
            live.roll()
        wait_until(lambda: follower.data == lines(*range(live.end)))


@promise(
    "While no record arrives, a pending read ends with EINTR about once a second, so that an"
    " interrupted reader is not blocked."
)
def test_interrupting_a_follower(live: LiveLog, mount: Mounting) -> None:
    where = mount(live.directory).point / "t" / "0"
    reader = subprocess.Popen(["cat", "follow"], cwd=where, stdout=subprocess.PIPE)
    assert reader.stdout is not None
    assert reader.stdout.read(len(lines(*range(6)))) == lines(*range(6))
    reader.send_signal(signal.SIGINT)
    assert reader.wait(PATIENCE_SECONDS) == -signal.SIGINT  # nothing else ends its read
    reader.stdout.close()


@promise(
    "`poll` reports that `follow` can be read when there are bytes to read, and wakes up when some"
    " arrive."
)
def test_polling(live: LiveLog, mount: Mounting) -> None:
    file = os.open(mount(live.directory).point / "t" / "0" / "follow", os.O_RDONLY | os.O_NONBLOCK)
    try:
        poll = select.poll()
        poll.register(file, select.POLLIN)
        assert poll.poll(0) == [(file, select.POLLIN)]
        assert os.read(file, 1 << 20) == lines(*range(6))
        assert poll.poll(0) == []
        with pytest.raises(BlockingIOError):
            os.read(file, 1 << 20)
        for _ in range(3):
            threading.Timer(0.05, live.append).start()
            assert poll.poll(int(1000 * PATIENCE_SECONDS)) == [(file, select.POLLIN)]
            assert os.read(file, 1 << 20) == lines(live.end - 1)
    finally:
        os.close(file)


@promise(
    "A reader whose next records are deleted by retention continues with the first that is left."
)
def test_retention_passes_a_follower(live: LiveLog, mount: Mounting) -> None:
    path = mount(live.directory).point / "t" / "0" / "follow"
    file = os.open(path, os.O_RDONLY)
    try:
        assert os.read(file, 1 << 20) == lines(*range(6))
        live.append()
        live.roll()
        gone = live.end
        live.delete_before(gone)
        live.append()
        found = b""
        while not found.endswith(lines(gone)):
            found += os.read(file, 1 << 20)
        assert found in (lines(gone), lines(gone - 1, gone))
    finally:
        os.close(file)


@promise("When the partition is deleted, the reader reaches the end of the file.")
def test_deletion_ends_following(
    live: LiveLog, mount: Mounting, follow: Callable[[Path], Follower]
) -> None:
    follower = follow(mount(live.directory).point / "t" / "0" / "follow")
    wait_until(lambda: follower.data == lines(*range(6)))
    live.delete()
    wait_until(lambda: follower.ended)
    assert follower.data == lines(*range(6))


@promise(
    "`follow` and `follow.jsonl` can be opened but are not listed, so that programs that read whole"
    " directories do not hang."
)
def test_follow_is_not_listed(live: LiveLog, mount: Mounting, tmp_path: Path) -> None:
    where = mount(live.directory).point / "t" / "0"
    for name in ("follow", "follow.jsonl"):
        assert name not in os.listdir(where)
        assert (where / name).is_file()
    assert "values" in sh("grep -rl 'value' --include='values*' .", where)
    sh(f"cp -r {where} {tmp_path}/copy", where)
    assert (tmp_path / "copy" / "values").read_bytes() == (where / "values").read_bytes()


@promise(
    "A reader can seek back within the bytes that its last read returned, as `head` does, and read"
    " them again; a read from further back fails with EINVAL. Seeking ahead skips bytes."
)
def test_seeking_while_following(live: LiveLog, mount: Mounting) -> None:
    where = mount(live.directory).point / "t" / "0" / "follow"
    whole = lines(*range(6))
    with where.open("rb", buffering=0) as file:
        assert file.read(9) == whole[:9]
        file.seek(-6, os.SEEK_CUR)
        assert file.read(4) == whole[3:7]
        assert file.read(4) == whole[7:9]
        assert file.read(4) == whole[9:13]
        assert errno_of(os.pread, file.fileno(), 1, 8) == errno.EINVAL
        assert os.pread(file.fileno(), 3, 15) == whole[15:18]


# -- 8 Status and settings ----------------------------------------------------------------------


@promise(
    "`status.json` in a partition is a JSON object with its offsets, sizes, timestamps, segments,"
    " checkpoints and the damage found so far."
)
def test_status(clean: Path) -> None:
    for (topic, number), offsets in answers.offsets(CLEAN).items():
        found = json.loads((clean / topic / str(number) / "status.json").read_text())
        assert found["logStartOffset"] == offsets.beginning
        assert found["logEndOffset"] == offsets.end
        assert found["lastStableOffset"] == offsets.last_stable
        logs = list((clean / topic / str(number) / "segments").glob("*.log"))
        assert found["segments"]["count"] == len(logs)
        assert found["bytes"] == sum(log.stat().st_size for log in logs)
        assert found["damage"] == []
        assert {"firstTimestamp", "maxTimestamp", "checkpoints", "dirtyRatio"} <= set(found)


@promise(
    "`.kafkafs/status.json` is a JSON object with the log directories, the options of the mount,"
    " all problems and all damage found so far."
)
def test_status_of_the_mount(mount: Mounting, corpus: Callable[[str], Path]) -> None:
    dirs = [corpus("kafka43-two-dirs") / name for name in ("dir1", "dir2")]
    point = mount(dirs, "isolation=read_uncommitted").point
    found = json.loads((point / ".kafkafs" / "status.json").read_text())
    assert [each["path"] for each in found["logDirs"]] == list(map(str, dirs))
    assert found["isolation"] == "read_uncommitted"
    assert (found["problems"], found["damage"]) == ([], [])


@promise(
    "A topic's `config.properties` contains its configs that differ from the defaults, one"
    " `name=value` per line."
)
def test_settings_of_topics(clean: Path) -> None:
    for topic, settings in answers.topic_configs(CLEAN).items():
        found = parse_properties((clean / topic / "config.properties").read_bytes())
        assert settings.items() <= found.items()


@promise("`.kafkafs/config.properties` contains the engine's configs in the same form.")
def test_settings_of_the_engine(clean: Path) -> None:
    found = parse_properties((clean / ".kafkafs" / "config.properties").read_bytes())
    assert int(found["kafkafs.max.batch.bytes"]) > 0


@promise(
    "These files, `why.json` and `.kafkafs/metrics` have their exact size, and what an open file"
    " shows does not change."
)
def test_sizes_of_documents(live: LiveLog, mount: Mounting, tmp_path: Path) -> None:
    point = mount(live.directory).point
    names = [".kafkafs/status.json", ".kafkafs/metrics", ".kafkafs/config.properties"]
    names += ["t/config.properties", "t/0/status.json", "t/0/why.json"]
    for name in names:
        path = point / name
        with path.open("rb") as first, path.open("rb") as second:
            sizes = [os.fstat(file.fileno()).st_size for file in (first, second)]
            live.append()
            read = [first.read(), second.read()]
            assert list(map(len, read)) == sizes
            for file, data in zip((first, second), read, strict=True):
                file.seek(0)
                assert file.read() == data
        for _ in range(20):
            sh(f"cp {path} {tmp_path}/copy; tar -cf {tmp_path}/a.tar {name}", point)
        assert path.stat().st_size > 0 or name.endswith("config.properties")


@promise(
    "If the directories contain `__cluster_metadata-0`, `.kafkafs/cluster` has a JSON file for each"
    " subject, which says after how many records of that log the cluster was so, and `log.jsonl`"
    " with a line for each change."
)
def test_cluster(clean: Path) -> None:
    cluster = clean / ".kafkafs" / "cluster"
    names = os.listdir(cluster)
    assert len(names) == 10
    for name in names:
        path = cluster / name
        assert path.stat().st_size == len(path.read_bytes())
        if name != "log.jsonl":
            assert json.loads(path.read_text())["offset"] == 219
    topics = json.loads((cluster / "topics.json").read_text())["topics"]
    assert {row["topic"]: row["topicId"] for row in topics} == answers.topic_ids(CLEAN)
    changes = [json.loads(line) for line in (cluster / "log.jsonl").read_text().splitlines()]
    gone = [row["change"] for row in changes if row.get("topic") == "gone"]
    assert gone == ["topicCreated", "topicDeleted"]


# -- 9 Damage -----------------------------------------------------------------------------------


@pytest.fixture
def damaged(live: LiveLog, mount: Mounting) -> Path:
    """The partition of a mount in which the batch of offset 2 is damaged."""
    live.damage(2)
    mounted = mount(live.directory)
    mounted.expects_warnings = True
    return mounted.point / "t" / "0"


@promise("A record whose batch is damaged is EIO.")
def test_a_damaged_record(damaged: Path) -> None:
    for name in ("2", "2.json", "2.key"):
        with pytest.raises(OSError, match="Input/output") as caught:
            (damaged / "offset" / name).read_bytes()
        assert caught.value.errno == errno.EIO


@promise("Records before and after the damage are served.")
def test_around_damage(damaged: Path) -> None:
    for offset in (0, 1, 3, 4, 5):
        assert (damaged / "offset" / str(offset)).read_bytes() == value(offset)


@promise(
    "A stream returns the bytes before the damage; the read that begins exactly there fails once"
    " with EIO, and the next one continues with what follows."
)
def test_damage_in_a_stream(damaged: Path) -> None:
    file = os.open(damaged / "values", os.O_RDONLY)
    try:
        assert os.read(file, 1 << 20) == lines(0, 1)
        with pytest.raises(OSError, match="Input/output"):
            os.read(file, 1 << 20)
        assert os.read(file, 1 << 20) == lines(3, 4, 5)
        assert os.read(file, 1 << 20) == b""
    finally:
        os.close(file)
    done = subprocess.run(["cat", "values"], cwd=damaged, capture_output=True, check=False)
    assert done.stdout == lines(0, 1)
    assert b"Input/output error" in done.stderr
    command = ["dd", "if=values", "conv=noerror", "bs=1", "status=none"]
    done = subprocess.run(command, cwd=damaged, capture_output=True, check=False)
    assert done.stdout == lines(0, 1) + lines(3, 4, 5)


@promise(
    "A stream that is known to be damaged when it is opened has the size of what can be read, is"
    " read from its beginning only, and is neither mapped nor sent by sendfile: ESPIPE, ENODEV,"
    " EINVAL."
)
def test_a_damaged_stream_is_not_copied_in_part(damaged: Path, tmp_path: Path) -> None:
    path = damaged / "values"
    assert path.stat().st_size == len(lines(0, 1, 3, 4, 5))
    with pytest.raises(OSError, match="Input/output"):
        shutil.copy(path, tmp_path / "copy")
    file, copy = os.open(path, os.O_RDONLY), os.open(tmp_path / "copy", os.O_RDWR | os.O_CREAT)
    try:
        assert errno_of(os.lseek, file, 0, os.SEEK_END) == errno.ESPIPE
        assert errno_of(os.pread, file, 10, 0) == errno.ESPIPE
        assert errno_of(os.sendfile, copy, file, None, 100) == errno.EINVAL
        with pytest.raises(OSError, match="No such device"):
            mmap.mmap(file, 0, prot=mmap.PROT_READ)
    finally:
        os.close(file)
        os.close(copy)


@promise(
    "All damage is logged once with file, position and fault, and is listed in both `status.json`."
)
def test_damage_is_told(live: LiveLog, mount: Mounting) -> None:
    log = live.damage(2)
    mounted = mount(live.directory)
    where = mounted.point / "t" / "0"
    for _ in range(3):
        for name in ("offset/2", "values", "records.jsonl"):
            assert errno_of((where / name).read_bytes) == errno.EIO
    (line,) = mounted.lines("WARNING")
    assert f"{log}: position 0: " in line
    assert "crc" in line
    (found,) = json.loads((where / "status.json").read_text())["damage"]
    assert (found["file"], found["position"]) == (str(log), 0)
    assert "crc" in found["what"]
    (of_mount,) = json.loads((mounted.point / ".kafkafs" / "status.json").read_text())["damage"]
    assert of_mount == {"topic": "t", "partition": 0, **found}


@promise("Listing `offset` omits the lost records.")
def test_listing_around_damage(damaged: Path) -> None:
    assert os.listdir(damaged / "offset") == ["first", "last", "0", "1", "3", "4", "5"]


@promise("A time is EIO if its first record may be among the damaged ones.")
def test_times_around_damage(damaged: Path, live: LiveLog) -> None:
    times = damaged / "time"
    first = 1_526_384_718_000
    assert os.readlink(times / str(first + 1000)) == "../offset/1"
    with pytest.raises(OSError, match="Input/output"):
        os.readlink(times / str(first + 1500))
    assert os.readlink(times / str(first + 4000)) == "../offset/4"
