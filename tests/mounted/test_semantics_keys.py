"""The promises of SEMANTICS.md about keys, one by one."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests import answers
from tests.building import BatchFields, build_batch
from tests.logs import write_partition, write_topic
from tests.mounted.conftest import Mounting
from tests.mounted.live import TIMESTAMP, LiveLog, value
from tests.mounted.mounting import errno_of, mounted
from tests.mounted.promises import promise
from tests.waiting import wait_until

CLEAN = "kafka43-clean"


def append(live: LiveLog, key: bytes | None, content: bytes | None) -> int:
    """Appends a record; returns its offset."""
    record = SimpleRecord(TIMESTAMP + 1000 * live.end, key, content)
    with live.active().open("ab") as file:
        file.write(build_batch([record], BatchFields(base_offset=live.end)))
    live.end += 1
    return live.end - 1


def names(directory: Path) -> list[bytes]:
    return os.listdir(os.fsencode(directory))


@promise(
    "`key/K` is the file of the latest record served with the key K: its bytes, attributes and"
    " time are those of `offset/N`."
)
@pytest.mark.parametrize("topic", ["orders", "compacted", "codec-zstd"])
def test_latest_records(clean: Path, topic: str) -> None:
    partition = clean / topic / "0"
    latest = {record.key: record for record in answers.records(CLEAN, topic, 0)}
    assert len(latest) > 1
    for key, record in latest.items():
        if key is None or record.value is None or not key.isalnum():
            continue
        by_key, by_offset = (
            partition / "key" / key.decode(),
            partition / "offset" / str(record.offset),
        )
        assert by_key.read_bytes() == record.value == by_offset.read_bytes()
        assert by_key.stat() == by_offset.stat()
        assert by_key.stat().st_mtime_ns == record.timestamp * 1_000_000
        for name in os.listxattr(by_offset):
            assert os.getxattr(by_key, name) == os.getxattr(by_offset, name)
        assert os.getxattr(by_key, "user.kafka.offset") == b"%d" % record.offset


@promise("It is ENOENT if no record served has the key, and if the latest one is a tombstone.")
def test_no_such_key(live: LiveLog, mount: Mounting) -> None:
    keys = mount(live.directory).point / "t/0/key"
    assert (keys / "key 3").read_bytes() == value(3)
    append(live, b"key 3", None)
    assert errno_of(os.stat, keys / "key 3") == errno.ENOENT
    for name in ("key 6", "KEY 3", "%", "%zz", "a%", "%2", "%~" + "0" * 64):
        assert errno_of(os.stat, keys / name) == errno.ENOENT
    append(live, b"key 3", b"again")
    assert (keys / "key 3").read_bytes() == b"again"
    live.delete_before(2)
    wait_until(lambda: not (keys / "key 0").exists())


@promise("The name is never cached: it leads to a record as soon as that is served.")
def test_names_are_not_remembered(live: LiveLog, mount: Mounting) -> None:
    keys = mount(live.directory).point / "t/0/key"
    for at in range(50):
        append(live, b"k", b"%d" % at)
        os.listdir(keys)
        assert (keys / "k").read_bytes() == b"%d" % at
        assert os.getxattr(keys / "k", "user.kafka.offset") == b"%d" % (live.end - 1)


@promise(
    "In the name of a key, `%XX` stands for a byte; `/`, `%`, control characters and bytes that"
    " are not UTF-8 are listed so, the keys `.` and `..` are `%2E` and `%2E%2E`, and the empty key"
    " is `%`."
)
def test_names_of_keys(live: LiveLog, mount: Mounting) -> None:
    named = {
        b"": b"%",
        b".": b"%2E",
        b"..": b"%2E%2E",
        b"...": b"...",
        b"/": b"%2F",
        b"a/b": b"a%2Fb",
        b"a\0b": b"a%00b",
        b"100%": b"100%25",
        b"%41": b"%2541",
        b"two\nlines\x7f": b"two%0Alines%7F",
        "zwölf €".encode(): "zwölf €".encode(),
        b"\xff\xfe": b"%FF%FE",
        b"\xc3": b"%C3",
        b"-rf ": b"-rf ",
    }
    for key in named:
        append(live, key, b"value of " + key)
    keys = mount(live.directory).point / "t/0/key"
    assert names(keys)[6:] == list(named.values())
    for key, name in named.items():
        path = os.fsencode(keys) + b"/" + name
        assert Path(os.fsdecode(path)).read_bytes() == b"value of " + key
        assert os.getxattr(path, "user.kafka.key") == key
    for other in ("%41" + "%42", "A%42", "%2e%2E", "%2e%2e"):
        assert (keys / other).exists() == other.lower().startswith("%2e")


@promise(
    "A name that would be longer than 255 bytes is truncated and ends in `%~` and the key's"
    " SHA-256; `user.kafka.key` is the whole key."
)
def test_names_too_long(live: LiveLog, mount: Mounting) -> None:
    long = [b"a" * 255, b"a" * 256, b"a" * 300, b"/" * 85, b"/" * 86, "ü".encode() * 128]
    long += [b"x" * (1 << 20), b"\xff" * 5000]
    for key in long:
        append(live, key, b"old")
        append(live, key, b"%d" % len(key))
    keys = mount(live.directory).point / "t/0/key"
    for key in long[1:2]:  # before it was listed
        name = b"a" * 189 + b"%~" + hashlib.sha256(key).hexdigest().encode()
        assert (keys / name.decode()).read_bytes() == b"256"
    listed = names(keys)[6:]
    assert len(set(listed)) == len(long)
    assert listed[0] == long[0]
    assert listed[3] == b"%2F" * 85
    for key, name in zip(long, listed, strict=True):
        path = os.fsencode(keys) + b"/" + name
        assert len(name) <= 255
        assert name.decode("utf-8")
        assert Path(os.fsdecode(path)).read_bytes() == b"%d" % len(key)
        if len(key) < 1 << 16:
            assert os.getxattr(path, "user.kafka.key") == key
        if len(key) > 255:
            assert name.endswith(b"%~" + hashlib.sha256(key).hexdigest().encode())
    wrong = listed[2][:-1] + (b"0" if listed[2][-1:] != b"0" else b"1")
    assert errno_of(os.stat, os.fsencode(keys) + b"/" + wrong) == errno.ENOENT


@promise(
    "Listing `key` returns every key whose latest record has a value, once, in the order of these"
    " records."
)
def test_listing_keys(clean: Path, live: LiveLog, mount: Mounting) -> None:
    for topic in ("orders", "compacted"):
        latest = {record.key: record for record in answers.records(CLEAN, topic, 0)}
        there = [r for r in latest.values() if r.key is not None and r.value is not None]
        there.sort(key=lambda record: record.offset)
        assert names(clean / topic / "0" / "key") == [record.key for record in there]
    for key, content in ((b"key 1", b"x"), (b"key 4", None), (None, b"y"), (b"new", b"")):
        append(live, key, content)
    expected = [b"key 0", b"key 2", b"key 3", b"key 5", b"key 1", b"new"]
    keys = mount(live.directory).point / "t/0/key"
    assert names(keys) == expected
    with os.scandir(keys) as entries:
        sizes = {entry.name: entry.stat().st_size for entry in entries}
    assert sizes == {"key 1": 1, "new": 0, **{f"key {at}": 7 for at in (0, 2, 3, 5)}}


@promise(
    "Listing keys uses a bounded amount of memory: twice `kafkafs.key.cache.bytes`, and one bit"
    " for each record."
)
def test_listing_many_keys(tmp_path: Path) -> None:
    count, together = 80_000, 1000
    batches = (
        build_batch(
            [
                SimpleRecord(TIMESTAMP, b"key number %d" % at, b"")
                for at in range(low, low + together)
            ],
            BatchFields(base_offset=low),
        )
        for low in range(0, count, together)
    )
    write_topic(tmp_path / "logs", batches)
    settings = {"kafkafs.key.cache.bytes": "1048576"}
    with mounted([tmp_path / "logs"], tmp_path, settings=settings) as mount:
        keys = mount.point / "t/0/key"
        assert (keys / "key number 0").exists()
        assert not (keys / "key number").exists()
        before = mount.memory_kb("VmHWM")
        with os.scandir(keys) as entries:
            assert sum(1 for _ in entries) == count
        assert mount.memory_kb("VmHWM") - before < 24 << 10


@promise("A key is EIO if a later record with it may be among the damaged ones.")
def test_damaged_keys(live: LiveLog, mount: Mounting) -> None:
    live.damage(3)
    mounting = mount(live.directory)
    keys = mounting.point / "t/0/key"
    assert (keys / "key 5").read_bytes() == value(5)
    for name in ("key 0", "key 3", "none"):
        assert errno_of(os.stat, keys / name) == errno.EIO
    status = json.loads((mounting.point / "t/0/status.json").read_bytes())
    assert len(status["damage"]) == len(mounting.lines("WARNING")) == 1
    assert names(keys) == [b"key 0", b"key 1", b"key 2", b"key 4", b"key 5"]


@promise(
    "`key/K.history.jsonl`, which is not listed, has a JSON line for each version of K on the disk,"
    " in the order of their offsets, with its file and whether it is served: also for versions"
    " below the log start offset, in deleted segments, in segments that compaction has replaced,"
    " and in deleted and stray partitions. Those of an earlier life of the topic, with another"
    " topic id, come first. It is ENOENT if there is none."
)
def test_histories(clean: Path, live: LiveLog, mount: Mounting) -> None:
    compacted = clean / "compacted" / "0"
    rows = lines(compacted / "key" / "key-29.history.jsonl")
    assert [row["offset"] for row in rows] == [1689, 2654, 2871, 3007, 3041, 3410, 4764]
    assert [row["served"] for row in rows] == [False] * 5 + [True] * 2
    assert [row["state"] for row in rows] == ["compacted away"] * 5 + ["served"] * 2
    assert all(row["file"].endswith(".log.deleted") for row in rows[:5])
    served = [line for line in lines(compacted / "records.jsonl") if line["key"] == "key-29"]
    assert [{name: row[name] for name in served[0]} for row in rows[5:]] == served
    assert not [name for name in os.listdir(compacted / "key") if "history" in name]
    assert errno_of(os.stat, compacted / "key" / "nobody.history.jsonl") == errno.ENOENT
    keys = mount(live.directory).point / "t/0/key"
    append(live, b"key 1", None)
    live.delete_before(2)
    live.start_at(3)
    now = [(1, value(1).decode(), "below the log start offset"), (6, None, "served")]
    assert versions(keys) == now
    for number, ending in enumerate(("delete", "stray"), 2):
        earlier = live.directory / f"t-0.{number:032x}-{ending}"
        record = SimpleRecord(TIMESTAMP, b"key 1", ending.encode())
        write_partition(earlier, [build_batch([record])], topic_id=bytes([number]) * 16)
    before = [(0, "delete", "in a deleted partition"), (0, "stray", "in a stray partition")]
    wait_until(lambda: b"in a stray partition" in (keys / HISTORY).read_bytes())
    assert versions(keys) == before + now
    assert errno_of(os.stat, keys / "key 1") == errno.ENOENT


HISTORY = "key 1.history.jsonl"


def versions(keys: Path) -> list[tuple[int, str | None, str]]:
    return [(row["offset"], row["value"], row["state"]) for row in lines(keys / HISTORY)]


def lines(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    assert path.stat().st_size == len(data)
    return [json.loads(line) for line in data.splitlines()]


@promise(
    "A key that ends in `.history.jsonl` is listed with `%2Ehistory.jsonl` at its end; where K is"
    " longer than 241 bytes, `%~` and its SHA-256 stand for it."
)
def test_names_of_histories(live: LiveLog, mount: Mounting) -> None:
    long = b"k" * 250
    append(live, HISTORY.encode(), b"a key")
    append(live, long, b"long")
    keys = mount(live.directory).point / "t/0/key"
    assert b"key 1%2Ehistory.jsonl" in names(keys)
    assert (keys / "key 1%2Ehistory.jsonl").read_bytes() == b"a key"
    assert [row["offset"] for row in lines(keys / HISTORY)] == [1]
    [row] = lines(keys / "key 1%2Ehistory.jsonl.history.jsonl")
    assert row["key"] == HISTORY
    [row] = lines(keys / f"%~{hashlib.sha256(long).hexdigest()}.history.jsonl")
    assert row["value"] == "long"


@promise("At damage, reading a history is EIO once, and continues after it.")
def test_damaged_histories(live: LiveLog, mount: Mounting) -> None:
    live.damage(2)
    live.end = 6
    append(live, b"key 1", b"again")
    mounted_log = mount(live.directory)
    mounted_log.expects_warnings = True
    path = mounted_log.point / "t/0/key" / HISTORY
    with path.open("rb", buffering=0) as file:
        first = file.read(1 << 16)
        assert errno_of(file.read, 1 << 16) == errno.EIO
        rest = file.read(1 << 16)
        assert file.read(1 << 16) == b""
    offsets = [json.loads(line)["offset"] for line in (first + rest).splitlines()]
    assert offsets == [1, 6]
