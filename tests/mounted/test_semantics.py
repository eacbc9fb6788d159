"""The promises of SEMANTICS.md about names, records, times and segments, one by one."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkafs.storage.format.messages.internal_topics import DECODERS, TextDecoder
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.segment.dump.dump import Dump, DumpOptions, is_known
from tests import answers
from tests.answers import READ_UNCOMMITTED, ExpectedRecord
from tests.building import BatchFields, build_batch
from tests.logs import write_topic
from tests.mounted.conftest import Mounting
from tests.mounted.live import LiveLog, value
from tests.mounted.mounting import Mount, errno_of
from tests.mounted.promises import promise, promised, quoted
from tests.waiting import wait_until

CLEAN = "kafka43-clean"


def expected(
    topic: str, number: int = 0, isolation: str = answers.READ_COMMITTED
) -> list[ExpectedRecord]:
    return list(answers.records(CLEAN, topic, number, isolation))


def test_every_promise_has_its_test() -> None:
    """Also, nothing else is quoted, and the wording is the same."""
    assert sorted(set(quoted())) == sorted(promised().values())


def test_promises_are_numbered_in_order() -> None:
    numbers = [tuple(map(int, number.split("."))) for number in promised()]
    assert numbers == sorted(set(numbers))


# -- 1 The tree ---------------------------------------------------------------------------------


@promise(
    "The root contains one directory for each topic that has a partition here, and `.kafkafs`."
)
def test_root(clean: Path) -> None:
    topics = {topic for topic, _ in answers.partitions(CLEAN)}
    assert set(os.listdir(clean)) == {".kafkafs", "__cluster_metadata", *topics}


@promise(
    "A topic's directory contains one directory for each of its partitions here, named by its"
    " number, and `config.properties`."
)
def test_topic(clean: Path) -> None:
    for topic in {topic for topic, _ in answers.partitions(CLEAN)}:
        numbers = [str(number) for of, number in answers.partitions(CLEAN) if of == topic]
        assert sorted(os.listdir(clean / topic)) == [*numbers, "config.properties"]


@promise(
    "A partition's directory contains `offset`, `time`, `range`, `compacted`, `key`, `segments`,"
    " `dump`, `records.jsonl`, `records.arrow`, `decoded.jsonl`, `values`, `keys`, `why.json` and"
    " `status.json`, and nothing else."
)
def test_partition(clean: Path) -> None:
    assert set(os.listdir(clean / "orders" / "0")) == {
        *("offset", "time", "key", "segments", "records.jsonl", "records.arrow", "values", "keys"),
        *("compacted", "decoded.jsonl", "dump", "range", "why.json", "status.json"),
    }


@promise(
    "Topics and partitions that a broker creates appear within a second, and those that it deletes"
    " disappear within a second."
)
def test_topics_come_and_go(live: LiveLog, mount: Mounting) -> None:
    point = mount(live.directory).point
    assert os.listdir(point / "t") == ["config.properties", "0"]
    (live.directory / "t-1").mkdir()
    wait_until(lambda: "1" in os.listdir(point / "t") and (point / "t" / "1").is_dir())
    (live.directory / "new-0").mkdir()
    wait_until(lambda: "new" in os.listdir(point) and (point / "new" / "0").is_dir())
    (live.directory / "new-0").rmdir()
    wait_until(lambda: "new" not in os.listdir(point) and not (point / "new").exists())
    live.delete()
    wait_until(lambda: not (point / "t" / "0").exists())


@promise(
    "Directories that a broker keeps for deletion, for moving or as strays are not topics or"
    " partitions."
)
def test_directories_of_other_states(live: LiveLog, mount: Mounting) -> None:
    for ending in ("delete", "future", "stray"):
        (live.directory / f"t-7.{'0' * 32}-{ending}").mkdir()
    point = mount(live.directory).point
    assert set(os.listdir(point)) == {".kafkafs", "t"}
    assert set(os.listdir(point / "t")) == {"config.properties", "0"}


@promise(
    "Directories have mode 0555, files 0444 and links 0777, and all of them belong to the user who"
    " mounted."
)
def test_modes_and_owner(clean: Path) -> None:
    modes = {stat.S_IFDIR: 0o555, stat.S_IFREG: 0o444, stat.S_IFLNK: 0o777}
    kinds = set()
    for folder, folders, files in os.walk(clean / "codec-none"):
        for name in [".", *folders, *files]:
            status = os.lstat(os.path.join(folder, name))
            kind = stat.S_IFMT(status.st_mode)
            kinds.add(kind)
            assert stat.S_IMODE(status.st_mode) == modes[kind]
            assert (status.st_uid, status.st_gid) == (os.getuid(), os.getgid())
    assert kinds == set(modes)


@promise("In every directory, a name that does not exist is ENOENT.")
def test_no_such_name(clean: Path) -> None:
    for directory in ("", ".kafkafs", "orders", "orders/0", "orders/0/offset", "orders/0/time"):
        assert errno_of(os.lstat, clean / directory / "nothing") == errno.ENOENT
    assert errno_of(os.lstat, clean / "orders/0/segments/nothing") == errno.ENOENT


@promise(
    "The answer that a name does not exist is never cached: the name works as soon as its file"
    " exists."
)
def test_absence_is_not_remembered(live: LiveLog, mount: Mounting) -> None:
    point = mount(live.directory).point
    for _ in range(20):
        path = point / "t" / "0" / "offset" / str(live.end)
        assert errno_of(os.stat, path) == errno.ENOENT
        (offset,) = live.append()
        assert path.read_bytes() == value(offset)


@promise(
    "Of a file's times, only the modification time is known; access time and change time are"
    " 1970-01-01T00:00:00Z."
)
def test_other_times(clean: Path) -> None:
    where = clean / "orders" / "0"
    names = ["offset/0", "offset/first", "values", "segments", f"segments/{0:020}.log"]
    for path in (where / name for name in names):
        assert (path.lstat().st_atime_ns, path.lstat().st_ctime_ns) == (0, 0)
    for entry in os.scandir(where / "offset"):
        assert (entry.stat().st_atime_ns, entry.stat().st_ctime_ns) == (0, 0)


@promise(
    "With `kafkafs[report]` installed, `.kafkafs/report.html` is the page that `kafkafs report`"
    " would write when the file is opened. Until then its size is an upper bound; an open file has"
    " its exact size."
)
def test_report(clean: Path) -> None:
    path = clean / ".kafkafs" / "report.html"
    bound = path.stat().st_size
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        page = file.read()
    assert len(page) == size <= bound
    assert page.startswith(b"<!DOCTYPE html>")
    assert b"txn-open/0" in page


# -- 2 Records ----------------------------------------------------------------------------------


@promise(
    "`offset/N` contains the value of the record at offset N, byte for byte; a null value is an"
    " empty file."
)
def test_values_of_records(clean: Path, old: Path) -> None:
    for topic in ("codec-none", "codec-zstd", "compacted", "txn"):
        for record in expected(topic):
            path = clean / topic / "0" / "offset" / str(record.offset)
            assert path.read_bytes() == (record.value or b"")
    for record in answers.records("kafka28", "mixed", 0):
        path = old / "mixed" / "0" / "offset" / str(record.offset)
        assert path.read_bytes() == (record.value or b"")


@promise(
    "`offset/N.key` contains the key of that record, byte for byte; if the key is null, the name"
    " is ENOENT."
)
def test_keys_of_records(clean: Path) -> None:
    keys = set()
    for record in expected("codec-gzip"):
        path = clean / "codec-gzip" / "0" / "offset" / f"{record.offset}.key"
        keys.add(record.key)
        if record.key is None:
            assert errno_of(os.stat, path) == errno.ENOENT
        else:
            assert path.read_bytes() == record.key
    assert {None, b""} < keys


@promise(
    "`offset/N.json` contains the whole record as one line of JSON: the fields of `records.jsonl`,"
    " then those of its batch."
)
def test_records_as_json(clean: Path) -> None:
    where = clean / "codec-lz4" / "0"
    for text in (where / "records.jsonl").read_text().splitlines():
        line = json.loads(text)
        whole = (where / "offset" / f"{line['offset']}.json").read_text()
        assert whole.endswith("}\n")
        assert whole.count("\n") == 1
        assert list(json.loads(whole).items())[: len(line)] == list(line.items())
        assert list(json.loads(whole))[len(line) :] == [
            *("leaderEpoch", "producerId", "producerEpoch", "sequence"),
            *("isTransactional", "isControl", "codec", "batch"),
        ]


@promise("An offset may be written with leading zeros; it names the same file.")
def test_leading_zeros(clean: Path) -> None:
    offsets = clean / "orders" / "0" / "offset"
    for name in ("0600", "00000000000000000600", "0" * 252 + "600"):
        assert (offsets / name).samefile(offsets / "600")
        assert (offsets / name).read_bytes() == (offsets / "600").read_bytes()
    assert (offsets / "0600.json").samefile(offsets / "600.json")


@promise(
    "Listing `offset` returns `first`, `last` and the offset of every record served, as plain"
    " decimal numbers in ascending order."
)
def test_listing_of_offsets(clean: Path) -> None:
    for topic, number in answers.partitions_with_records(CLEAN):
        offsets = [str(record.offset) for record in expected(topic, number)]
        links = ["first", "last"] if offsets else []
        assert os.listdir(clean / topic / str(number) / "offset") == links + offsets


@promise("The names `N.json`, `N.decoded.json` and `N.key` can be opened but are not listed.")
def test_names_not_listed(clean: Path) -> None:
    offsets = clean / "codec-none" / "0" / "offset"
    assert (offsets / "5.json").read_bytes()
    assert (offsets / "5.decoded.json").read_bytes()
    assert not [name for name in os.listdir(offsets) if "." in name]


@promise(
    "`offset/first` and `offset/last` are links to the first and the last record served; in an"
    " empty partition they are ENOENT."
)
def test_first_and_last(clean: Path) -> None:
    for topic, number in answers.partitions_with_records(CLEAN):
        offsets = clean / topic / str(number) / "offset"
        records = expected(topic, number)
        for name, at in (("first", 0), ("last", -1)):
            if records:
                assert os.readlink(offsets / name) == str(records[at].offset)
                assert (offsets / name).samefile(offsets / str(records[at].offset))
            else:
                assert errno_of(os.lstat, offsets / name) == errno.ENOENT
    assert errno_of(os.lstat, clean / "empty" / "0" / "offset" / "first") == errno.ENOENT


@promise(
    "An offset is ENOENT if it was never written, if compaction removed its record, or if it lies"
    " outside the log's start and end."
)
def test_absent_offsets(clean: Path) -> None:
    kept = {record.offset for record in expected("compacted")}
    end = answers.offsets(CLEAN)["compacted", 0].end
    assert len(kept) < end
    for offset in range(end + 3):
        path = clean / "compacted" / "0" / "offset" / str(offset)
        assert errno_of(os.stat, path) == (0 if offset in kept else errno.ENOENT)
    start = answers.offsets(CLEAN)["trimmed", 0].beginning
    trimmed = clean / "trimmed" / "0" / "offset"
    assert errno_of(os.stat, trimmed / str(start - 1)) == errno.ENOENT
    assert errno_of(os.stat, trimmed / str(start)) == 0
    assert errno_of(os.stat, clean / "orders/0/offset" / str(2**63)) == errno.ENOENT


@promise(
    "Control records and records of aborted transactions are ENOENT, and so are records at or"
    " above the last stable offset."
)
def test_committed_records_only(clean: Path) -> None:
    for topic in ("txn", "txn-open"):
        served = {record.offset for record in expected(topic)}
        of = answers.offsets(CLEAN)[topic, 0]
        for offset in range(of.end):
            path = clean / topic / "0" / "offset" / str(offset)
            assert errno_of(os.stat, path) == (0 if offset in served else errno.ENOENT)
        assert all(offset < of.last_stable for offset in served)


@promise(
    "With `-o isolation=read_uncommitted`, records of aborted and open transactions are served; a"
    " control record can be opened by its offset, but is neither listed nor in a stream, because"
    " no consumer receives one."
)
def test_uncommitted_records(uncommitted: Path) -> None:
    for topic in ("txn", "txn-open"):
        records = expected(topic, 0, READ_UNCOMMITTED)
        served = {record.offset for record in records}
        assert len(served) > len(expected(topic))
        for offset in range(answers.offsets(CLEAN)[topic, 0].end):
            path = uncommitted / topic / "0" / "offset" / f"{offset}.json"
            assert json.loads(path.read_bytes())["isControl"] == (offset not in served)
        listed = set(os.listdir(uncommitted / topic / "0" / "offset"))
        assert listed - {"first", "last"} == {str(offset) for offset in served}
        values = b"".join((record.value or b"") + b"\n" for record in records)
        assert (uncommitted / topic / "0" / "values").read_bytes() == values


@promise("The size of a record's file is exact before it is opened.")
def test_sizes(clean: Path) -> None:
    for record in expected("codec-snappy"):
        path = clean / "codec-snappy" / "0" / "offset" / str(record.offset)
        size = len(record.value or b"")
        assert path.stat().st_size == size
        assert path.stat().st_blocks == -(-size // 512)
    for entry in os.scandir(clean / "codec-snappy" / "0" / "offset"):
        if entry.name.isdigit():
            assert entry.stat().st_size == len(Path(entry).read_bytes())


@promise(
    "The modification time of a record's file is the record's timestamp; for a record without a"
    " timestamp it is 1970-01-01T00:00:00Z."
)
def test_times_of_records(clean: Path, old: Path) -> None:
    for topic in ("unordered", "appendtime"):
        for record in expected(topic):
            path = clean / topic / "0" / "offset" / str(record.offset)
            assert path.stat().st_mtime_ns == record.timestamp * 1_000_000
    for record in answers.records("kafka28", "v0-none", 0):
        assert record.timestamp == -1
        assert (old / "v0-none" / "0" / "offset" / str(record.offset)).stat().st_mtime_ns == 0


@promise(
    "A record's file keeps its inode number as long as the mount exists, and no two records share"
    " one."
)
def test_inode_numbers(clean: Path) -> None:
    seen: dict[int, Path] = {}
    for topic, number in answers.partitions_with_records(CLEAN):
        offsets = clean / topic / str(number) / "offset"
        for entry in os.scandir(offsets):
            path = Path(entry)
            if entry.name.isdigit():
                assert seen.setdefault(entry.inode(), path) == path
    for inode, path in list(seen.items())[::50]:
        assert path.stat().st_ino == inode
        assert (path.parent / f"{path.name}.key").exists() in (True, False)
        assert path.lstat().st_ino == inode


@pytest.fixture
def many(tmp_path: Path, mount: Mounting) -> Mount:
    """A mount of `t-0` with 200,000 records."""
    per_batch, batches = 500, 400
    whole = build_batch([SimpleRecord(0, None, b"v")] * per_batch, BatchFields())
    copies = ((at * per_batch).to_bytes(8, "big") + whole[8:] for at in range(batches))
    return mount(write_topic(tmp_path / "logs", copies))


@promise("Listing a directory of any length uses a bounded amount of the daemon's memory.")
def test_memory_of_a_listing(many: Mount) -> None:
    with os.scandir(many.point / "t" / "0" / "offset") as entries:
        for _ in range(1000):
            next(entries)
        before = many.memory_kb("VmHWM")
        count = 1000 + sum(1 for _ in entries)
    assert count == 200_002
    assert many.memory_kb("VmHWM") - before < 16 << 10


def lookups(mount: Mount) -> int:
    """Returns the number of lookups that the kernel has requested."""
    for line in (mount.point / ".kafkafs" / "metrics").read_text().splitlines():
        if line.startswith("kafkafs_request_seconds_count") and '"lookup"' in line:
            return int(float(line.split()[-1]))
    raise AssertionError("no lookups are counted")


@promise(
    "A long listing includes attributes once a listed name has been looked up: `find -newermt` and"
    " `ls -l` need no request for each name, and `ls` makes the kernel keep no inodes."
)
def test_attributes_of_a_listing(many: Mount) -> None:
    offsets = many.point / "t" / "0" / "offset"
    names = os.listdir(offsets)
    assert len(names) == 200_002
    assert set(names) == {"first", "last", *map(str, range(200_000))}
    before = lookups(many)
    for offset in range(150_000, 150_100):
        assert (offsets / str(offset)).stat().st_size == 1
    assert lookups(many) - before >= 100  # the kernel knew none of them
    before = lookups(many)
    with os.scandir(offsets) as entries:
        assert sum(entry.stat(follow_symlinks=False).st_size for entry in entries) >= 200_000
    assert lookups(many) - before < 20_000


class Dirent(ctypes.Structure):
    """Linux's struct dirent."""

    _fields_ = (
        ("d_ino", ctypes.c_ulong),
        ("d_off", ctypes.c_long),
        ("d_reclen", ctypes.c_ushort),
        ("d_type", ctypes.c_ubyte),
        ("d_name", ctypes.c_char * 256),
    )


class DirectoryStream:
    """The opendir family of calls, of which Python offers only a part."""

    def __init__(self, path: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        for name in ("opendir", "readdir"):
            getattr(self._libc, name).restype = ctypes.c_void_p
        self._libc.telldir.restype = ctypes.c_long
        self._stream = ctypes.c_void_p(self._libc.opendir(os.fsencode(path)))

    def tell(self) -> int:
        position: int = self._libc.telldir(self._stream)
        return position

    def seek(self, position: int) -> None:
        self._libc.seekdir(self._stream, ctypes.c_long(position))

    def rewind(self) -> None:
        self._libc.rewinddir(self._stream)

    def names(self) -> Iterator[str]:
        while entry := self._libc.readdir(self._stream):
            name: bytes = ctypes.cast(entry, ctypes.POINTER(Dirent)).contents.d_name
            yield os.fsdecode(name)

    def close(self) -> None:
        self._libc.closedir(self._stream)


@promise(
    "A listing may be interrupted at any entry and resumed there, and `rewinddir` restarts it."
)
@pytest.mark.parametrize("path", ["orders/0/offset", "orders/0/time", "orders/0/segments", ""])
def test_taking_up_a_listing(clean: Path, path: str) -> None:
    stream = DirectoryStream(clean / path)
    try:
        positions = [stream.tell()]
        names = []
        for name in stream.names():
            names.append(name)
            positions.append(stream.tell())
        assert names[:2] == [".", ".."]
        for at in [0, 1, 2, 3, len(names) // 2, len(names) - 1, len(names)]:
            stream.seek(positions[at])
            assert list(stream.names()) == names[at:]
        stream.rewind()
        assert list(stream.names()) == names
    finally:
        stream.close()


@promise(
    "The block size of a directory is 256 KiB: `ls` and `find` read that many bytes of names at a"
    " time."
)
@pytest.mark.parametrize("path", ["", "orders", "orders/0", "orders/0/offset", ".kafkafs"])
def test_block_size_of_directories(clean: Path, path: str) -> None:
    assert (clean / path).stat().st_blksize == 1 << 18
    # must equal what a listing of the parent directory reported
    assert os.listdir((clean / path).parent)
    assert (clean / path).stat().st_blksize == 1 << 18


# -- 3 Extended attributes ----------------------------------------------------------------------


def xattr(path: Path, name: str) -> bytes:
    return os.getxattr(path, f"user.kafka.{name}")


@promise(
    "`topic`, `partition`, `offset`, `timestamp` (milliseconds), `timestamp_type`, `codec`,"
    " `leader_epoch`, `producer_id`, `producer_epoch` and `sequence` are text; -1 stands for none."
)
def test_attributes_that_are_text(clean: Path) -> None:
    for ending in ("", ".json", ".key"):
        path = clean / "orders" / "1" / "offset" / f"7{ending}"
        record = expected("orders", 1)[7]
        found = {name: xattr(path, name).decode() for name in ("topic", "partition", "offset")}
        assert found == {"topic": "orders", "partition": "1", "offset": "7"}
        assert xattr(path, "timestamp") == b"%d" % record.timestamp
        assert xattr(path, "timestamp_type") == b"CreateTime"
        assert xattr(path, "codec") == b"none"
        assert xattr(path, "leader_epoch") == b"%d" % (record.leader_epoch or 0)
        for name in ("producer_id", "producer_epoch", "sequence"):
            assert xattr(path, name) == b"-1"
    idempotent = clean / "idem" / "0" / "offset" / "0"
    assert int(xattr(idempotent, "producer_id")) >= 0
    assert xattr(idempotent, "sequence") == b"0"


@promise("`key` is the key, byte for byte; it is missing if the key is null.")
def test_attribute_key(clean: Path) -> None:
    for record in expected("codec-none"):
        path = clean / "codec-none" / "0" / "offset" / str(record.offset)
        if record.key is None:
            assert "user.kafka.key" not in os.listxattr(path)
        else:
            assert xattr(path, "key") == record.key


@promise("`key_size` and `value_size` are the sizes in bytes; -1 stands for null.")
def test_attributes_of_size(clean: Path) -> None:
    for record in expected("codec-none"):
        path = clean / "codec-none" / "0" / "offset" / str(record.offset)
        for name, data in (("key_size", record.key), ("value_size", record.value)):
            assert xattr(path, name) == (b"-1" if data is None else b"%d" % len(data))


@promise(
    "`tombstone` is `true` for a record with a key and a null value, and `false` for all others."
)
def test_attribute_tombstone(clean: Path) -> None:
    seen = set()
    for record in expected("codec-none"):
        path = clean / "codec-none" / "0" / "offset" / str(record.offset)
        dead = record.key is not None and record.value is None
        seen.add(dead)
        assert xattr(path, "tombstone") == (b"true" if dead else b"false")
    assert seen == {True, False}


@promise(
    "`header.<name>` is the value of the last header of that name, byte for byte; it is missing if"
    " that value is null."
)
def test_attributes_of_headers(clean: Path) -> None:
    nulls = 0
    for record in expected("codec-none"):
        path = clean / "codec-none" / "0" / "offset" / str(record.offset)
        for name, content in dict(record.headers).items():
            if not name:
                continue
            if content is None:
                nulls += 1
                assert f"user.kafka.header.{name}" not in os.listxattr(path)
            else:
                assert xattr(path, f"header.{name}") == content
    assert nulls


@promise("`headers` is the list of all headers as JSON, in the form of `records.jsonl`.")
def test_attribute_headers(clean: Path) -> None:
    where = clean / "codec-none" / "0"
    lines = map(json.loads, (where / "records.jsonl").read_text().splitlines())
    with_headers = [line for line in lines if line["headers"]]
    assert with_headers
    for line in with_headers:
        found = xattr(where / "offset" / str(line["offset"]), "headers")
        assert json.loads(found) == line["headers"]


@promise("`batch` is the batch's base offset, position and size as JSON.")
def test_attribute_batch(clean: Path) -> None:
    for offset in (0, 600, 1200):
        batch = json.loads(xattr(clean / "orders" / "0" / "offset" / str(offset), "batch"))
        logs = sorted((clean / "orders" / "0" / "segments").glob("*.log"))
        log = [log for log in logs if int(log.stem) <= offset][-1]
        data = log.read_bytes()[batch["position"] :][: batch["size"]]
        assert int.from_bytes(data[:8], "big") == batch["baseOffset"] <= offset
        assert int.from_bytes(data[8:12], "big") + 12 == batch["size"]


@promise("An attribute that does not exist is ENODATA.")
def test_no_such_attribute(clean: Path) -> None:
    path = clean / "orders" / "0" / "offset" / "0"
    for name in ("user.kafka.nothing", "user.nothing", "security.capability"):
        assert errno_of(os.getxattr, path, name) == errno.ENODATA
    assert errno_of(os.getxattr, clean / "orders", "user.kafka.key") == errno.ENODATA
    assert os.listxattr(clean / "orders") == []


# -- 4 Times ------------------------------------------------------------------------------------


@promise(
    "`time/T` is a link to `../offset/N`, the first record served whose timestamp is T or later."
)
def test_time_links(clean: Path) -> None:
    for topic in ("orders", "unordered", "txn", "compacted"):
        records = expected(topic)
        for asked in sorted({record.timestamp + add for record in records[::40] for add in (0, 1)}):
            path = clean / topic / "0" / "time" / str(asked)
            first = next((r.offset for r in records if r.timestamp >= asked), None)
            if first is not None:
                assert os.readlink(path) == f"../offset/{first}"
                assert path.samefile(clean / topic / "0" / "offset" / str(first))


@promise(
    "T is a number of milliseconds since 1970, or a date or a date and time in ISO 8601, in UTC if"
    " it names no zone."
)
def test_forms_of_times(clean: Path) -> None:
    times = clean / "orders" / "0" / "time"
    same = ["1788266144663", "2026-09-01T12:35:44.663Z", "2026-09-01T12:35:44.663"]
    same += ["2026-09-01T14:35:44.663+02:00"]
    assert {os.readlink(times / name) for name in same} == {"../offset/600"}
    assert os.readlink(times / "2026-09-02") == os.readlink(times / "2026-09-02T00:00:00Z")


@promise("`time/T` is ENOENT if every record served is older than T, and if T is not a time.")
def test_no_such_time(clean: Path) -> None:
    latest = max(record.timestamp for record in expected("orders"))
    times = clean / "orders" / "0" / "time"
    assert errno_of(os.lstat, times / str(latest)) == 0
    for name in (str(latest + 1), "2100-01-01", "now", "-1", "1e3", "2026-02-30"):
        assert errno_of(os.lstat, times / name) == errno.ENOENT


@promise(
    "Listing `time` returns the timestamps in the time indexes in ascending order, each of which"
    " can be followed; one that is not later than another before it is omitted."
)
def test_listing_of_times(clean: Path) -> None:
    for topic in ("orders", "unordered", "txn", "txn-open", "compacted", "empty"):
        where = clean / topic / "0"
        indexed: list[int] = []
        for index in sorted((where / "segments").glob("*.timeindex")):
            data = index.read_bytes()
            indexed += [int.from_bytes(data[at : at + 8], "big") for at in range(0, len(data), 12)]
        latest = max((record.timestamp for record in expected(topic)), default=-1)
        kept: list[int] = []
        for time in indexed:
            if time <= latest and (not kept or time > kept[-1]):
                kept.append(time)
        assert os.listdir(where / "time") == list(map(str, kept))
        assert all((where / "time" / str(time)).exists() for time in kept)


@promise("The modification time of `time/T` is T.")
def test_times_of_times(clean: Path) -> None:
    times = clean / "orders" / "0" / "time"
    for name in os.listdir(times)[:20]:
        assert (times / name).lstat().st_mtime_ns == int(name) * 1_000_000


# -- 5 Segments ---------------------------------------------------------------------------------


@promise(
    "`segments` contains every regular file of the partition's directory, under its own name and"
    " byte for byte."
)
def test_segments(
    clean: Path, corpus: Callable[[str], Path], live: LiveLog, mount: Mounting
) -> None:
    for name in ("orders-0", "compacted-0", "txn-0", "__cluster_metadata-0"):
        topic, number = name.rsplit("-", 1)
        shown, broker_s = clean / topic / number / "segments", corpus(CLEAN) / name
        assert sorted(os.listdir(shown)) == sorted(os.listdir(broker_s))
        for path in broker_s.iterdir():
            assert (shown / path.name).read_bytes() == path.read_bytes()
    hostile = ["a\nb", "\udcff\udcfe", " ", "-rf", "x" * 255, "$(touch x)", "%s%n", "é"]
    for each in hostile:
        (live.partition / each).write_bytes(os.fsencode(each))
    shown = mount(live.directory).point / "t" / "0" / "segments"
    assert set(hostile) < set(os.listdir(shown))
    for each in hostile:
        assert (shown / each).read_bytes() == os.fsencode(each)


@promise(
    "Size and modification time of a file in `segments` are those of the broker's file at the"
    " moment of the request."
)
def test_attributes_of_segments(live: LiveLog, mount: Mounting) -> None:
    shown = mount(live.directory).point / "t" / "0" / "segments"
    for _ in range(5):
        for path in live.partition.iterdir():
            found = (shown / path.name).stat()
            assert found.st_size == path.stat().st_size
            assert found.st_mtime_ns == path.stat().st_mtime_ns
            assert len((shown / path.name).read_bytes()) == path.stat().st_size
        live.append()


@promise(
    "`dump` contains a file for each `.log`, `.index`, `.timeindex`, `.txnindex` and `.snapshot`,"
    " with `.txt` appended to its name: the lines that kafka-dump-log prints with"
    " `--print-data-log`, or with the decoder for its topic if that is one of Kafka's own,"
    " whatever the reader's isolation hides."
)
def test_dumps(clean: Path, corpus: Callable[[str], Path]) -> None:
    """tests/broker/test_dump.py checks that these lines are Kafka's."""
    internal = ("__cluster_metadata-0", "__consumer_offsets-1", "__transaction_state-0")
    for name in ("txn-0", "compacted-0", *internal):
        topic, number = name.rsplit("-", 1)
        decoder = DECODERS[topic]() if name in internal else TextDecoder()
        shown, broker_s = clean / topic / number / "dump", corpus(CLEAN) / name
        kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
        files = sorted(path for path in broker_s.iterdir() if path.suffix in kinds)
        assert sorted(os.listdir(shown)) == [f"{path.name}.txt" for path in files]
        for path in files:
            dump = Dump(DumpOptions(deep=True, contents=True, decoder=decoder))
            expected = b"".join(dump.text(DirFd(str(broker_s)), path.name, path.name))
            for heading, told in (dump.complaints | dump.gaps).items():
                expected += "".join(f"{line}\n" for line in (heading, *told)).encode()
            assert (shown / f"{path.name}.txt").read_bytes() == expected
    assert b" endTxnMarker: ABORT " in (clean / f"txn/0/dump/{11:020}.log.txt").read_bytes()


@promise(
    "The faults of a file are at the end of its dump, with file and position; what can be read"
    " after damage is in the dump, and no read fails."
)
def test_dumps_of_damage(live: LiveLog, mount: Mounting) -> None:
    path = live.damage(3)
    point = mount(live.directory).point
    text = (point / "t" / "0" / "dump" / f"{path.name}.txt").read_text()
    *lines, wrong = [line for line in text.splitlines() if not line.startswith(("Non-", "  "))]
    assert wrong.startswith(f"{path}: position ")
    assert any(line.startswith("| offset: ") for line in lines)


@promise(
    "Symbolic links, FIFOs, sockets, devices and directories in a partition's directory are neither"
    " listed nor opened."
)
def test_files_of_other_kinds(live: LiveLog, mount: Mounting) -> None:
    (live.partition / "link").symlink_to("/etc/passwd")
    (live.partition / f"{9:020}.index").symlink_to("/etc/passwd")
    os.mkfifo(live.partition / "fifo")
    (live.partition / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(live.partition)  # a socket's path must be short
        server.bind("socket")
        os.chdir("/")
    os.mkfifo(live.partition / f"{9:020}.log")
    mounted = mount(live.directory)
    mounted.expects_warnings = True  # what is in the place of a segment is reported as damage
    shown = mounted.point / "t" / "0" / "segments"
    others = {"link", f"{9:020}.index", "fifo", "folder", "socket", f"{9:020}.log"}
    assert not others & set(os.listdir(shown))
    for name in others:
        assert errno_of(os.stat, shown / name) == errno.ENOENT
    dumps = shown.parent / "dump"
    assert {f"{name}.txt" for name in os.listdir(shown) if is_known(name)} == set(os.listdir(dumps))
    assert errno_of(os.stat, dumps / f"{9:020}.log.txt") == errno.ENOENT
    with (shown.parent / "values").open("rb", buffering=0) as values:
        assert values.read(1 << 20).count(b"\n") == 6
        assert errno_of(values.read, 1 << 20) == errno.EIO
        assert values.read(1 << 20) == b""
