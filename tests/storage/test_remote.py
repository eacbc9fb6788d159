"""Directories in a bucket, while requests fail, objects change, and listings are malformed."""

from __future__ import annotations

import errno
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkafs.storage.errors import LogDirError, SegmentGone
from kafkafs.storage.io.directory import FileType
from kafkafs.storage.io.opening import open_directory
from kafkafs.storage.io.remote import requests
from kafkafs.storage.io.remote.blocks import BLOCK, BlockCache, DiskCache
from kafkafs.storage.io.remote.requests import REMOTE_COUNTS
from kafkafs.storage.io.remote.settings import RemoteSettings, cache_of
from kafkafs.storage.io.remote.source import Listed, Snapshot
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_dirs.engine import Engine
from tests import s3
from tests.s3 import SECRET, Fault
from tests.waiting import wait_until

#: Lists at every use, and keeps nothing, so that each test sees what it did.
FRESH = RemoteSettings(list_ms=0, memory_bytes=0)


@pytest.fixture(scope="module")
def served() -> Iterator[s3.S3]:
    with s3.serving() as server:
        yield server


@pytest.fixture
def server(served: s3.S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[s3.S3]:
    monkeypatch.setattr(requests, "_FIRST_PAUSE", 0.001)
    served.proxy.reset()
    yield served
    served.proxy.reset()


def reads(server: s3.S3) -> list[tuple[str, str, str]]:
    return [each for each in server.proxy.requests if "list-type" not in each[1]]


def times(count: int, fault: Fault, what: str = "") -> Callable[[str, str], Fault | None]:
    """Returns a fault of the first `count` requests whose path has `what`."""
    left = [count]

    def find(_method: str, path: str) -> Fault | None:
        if what not in path or left[0] == 0:
            return None
        left[0] -= 1
        return fault

    return find


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=500),
        Fault(status=503),
        Fault(status=429),
        Fault(resets=True),
        Fault(shortens=True),
        Fault(silent=0.6),
    ],
    ids=str,
)
def test_a_request_that_fails_for_a_while_is_repeated(server: s3.S3, fault: Fault) -> None:
    data = bytes(range(256)) * 40
    server.put("passing/x.log", data)
    settings = RemoteSettings(list_ms=0, memory_bytes=0, timeout_ms=300)
    file = open_directory("s3://bucket/passing", settings).open("x.log")
    before = REMOTE_COUNTS.retries
    server.proxy.fault = times(2, fault)
    assert file.read(1000, 500) == data[1000:1500]
    assert REMOTE_COUNTS.retries == before + 2
    assert len(reads(server)) == 3


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(status=503), "the server answered 503"),
        (Fault(shortens=True), "the bytes that arrived do not have the object's checksum"),
        (Fault(silent=0.2), "the server did not answer in time"),
    ],
    ids=str,
)
def test_a_request_that_keeps_failing_is_an_error_of_the_object(
    server: s3.S3, fault: Fault, reason: str
) -> None:
    server.put("failing/x.log", b"0123456789")
    settings = RemoteSettings(list_ms=0, memory_bytes=0, timeout_ms=100)
    directory = open_directory("s3://bucket/failing", settings)
    file = directory.open("x.log")
    server.proxy.fault = times(-1, fault)
    with pytest.raises(OSError, match=reason) as raised:
        file.read(0, 10)
    assert raised.value.errno == errno.EIO
    assert raised.value.filename == "s3://bucket/failing/x.log"
    assert raised.value.strerror is not None
    assert raised.value.strerror.startswith(reason)
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    server.proxy.fault = times(0, fault)
    assert file.read(0, 10) == b"0123456789"


def test_an_object_that_changes_is_never_mixed_with_what_it_was(server: s3.S3) -> None:
    server.put("changing/x.log", b"a" * 2 * BLOCK)
    directory = open_directory("s3://bucket/changing", FRESH)
    file = directory.open("x.log")
    held = directory.hold()
    server.put("changing/x.log", b"b" * 2 * BLOCK)
    with pytest.raises(SegmentGone, match=r"s3://bucket/changing/x\.log"):
        file.read(0, 10)
    new = directory.open("x.log")
    assert new.identity != file.identity
    assert new.read(0, 3) == b"bbb"
    assert directory.stat().st_size != held.stat().st_size  # a listing of it is no longer valid
    server.client.delete_object(Bucket=s3.BUCKET, Key="changing/x.log")
    with pytest.raises(SegmentGone, match=r"s3://bucket/changing/x\.log"):
        new.read(0, 10)
    with pytest.raises(SegmentGone):
        directory.list()


def test_permission_is_missing(server: s3.S3) -> None:
    server.put("secret/x.log", b"0123456789")
    file = open_directory("s3://bucket/secret", FRESH).open("x.log")
    server.proxy.fault = times(-1, Fault(status=403))
    with pytest.raises(PermissionError) as raised:
        file.read(0, 10)
    assert raised.value.filename == "s3://bucket/secret/x.log"
    with pytest.raises(PermissionError) as raised:
        open_directory("s3://bucket/secret", FRESH).list()
    assert raised.value.filename == "s3://bucket/secret"
    assert len(server.proxy.requests) == 3  # the first is of before


@pytest.mark.parametrize("url", ["s3://bucket/nothing-here", "s3://no-such-bucket/x"])
def test_what_does_not_exist_is_no_log_directory(server: s3.S3, url: str) -> None:
    with pytest.raises(LogDirError, match=f"{url}: no such directory"):
        Engine(url)


@pytest.mark.parametrize("again", [0, 1000])
def test_a_file_is_read_in_few_requests(server: s3.S3, again: int) -> None:
    """`again`: how much a reader of batches goes back, because it got a part of the last one."""
    data = b"".join(number.to_bytes(4, "big") for number in range(5 << 20))  # 20 MiB
    server.put("large/x.log", data)
    settings = RemoteSettings(memory_bytes=64 << 20)
    file = open_directory("s3://bucket/large", settings).open("x.log")
    server.proxy.requests.clear()
    position = 0
    while part := file.read(position, 100_000):
        assert part == data[position : position + 100_000]
        position += len(part) if len(part) < 100_000 else len(part) - again
    assert position == len(data)
    assert len(server.proxy.requests) <= 8  # of 4 MiB each, but for the first
    server.proxy.requests.clear()
    buffer = bytearray(3 << 20)
    assert file.read_into(7 << 20, buffer) == len(buffer)
    assert buffer == data[7 << 20 : 10 << 20]
    assert not server.proxy.requests  # all of it was cached
    assert file.read(len(data) - 3, 10) == data[-3:]
    assert file.read(len(data), 10) == b""


def test_threads_that_read_the_same_share_a_request(server: s3.S3) -> None:
    server.put("shared/x.log", bytes(3 * BLOCK))
    file = open_directory("s3://bucket/shared", RemoteSettings()).open("x.log")
    server.proxy.requests.clear()
    server.proxy.latency = 0.2
    threads = [threading.Thread(target=file.read, args=(0, BLOCK)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.proxy.requests) == 1


def test_an_offset_is_found_with_three_requests_and_then_with_one(
    server: s3.S3, corpus: Callable[[str], Path]
) -> None:
    url = server.upload(corpus("kafka43-clean"), "lookup")
    # Without cached blocks: each look-up is a request of its own, in any log, however large.
    configs = {"kafkafs.remote.memory.bytes": str(1 << 20)}
    view = Engine(url, configs).log("orders", 0).view()
    server.proxy.requests.clear()
    [first, second] = [view.segments[index].base_offset + 70 for index in (0, 1)]
    assert view.value_at(first, Isolation.READ_COMMITTED) is not None
    assert len(server.proxy.requests) <= 3
    server.proxy.requests.clear()
    assert view.value_at(second, Isolation.READ_COMMITTED) is not None
    assert len(server.proxy.requests) <= 3
    server.proxy.requests.clear()
    assert view.value_at(second + 1, Isolation.READ_COMMITTED) is not None
    assert len(server.proxy.requests) <= 1


def test_blocks_on_the_disk_are_found_by_another_process(server: s3.S3, tmp_path: Path) -> None:
    server.put("cached/x.log", b"x" * 3 * BLOCK)
    settings = RemoteSettings(memory_bytes=0, cache_dir=str(tmp_path), cache_bytes=2 * BLOCK)
    file = open_directory("s3://bucket/cached", settings).open("x.log")
    assert file.read(0, 3 * BLOCK) == b"x" * 3 * BLOCK
    blocks = sorted((tmp_path / "blocks").rglob("*.block"))
    assert sum(path.stat().st_size for path in blocks) <= 2 * BLOCK
    assert len(blocks) == 1
    # A block that is torn is not served, and one of another version of the object is not found.
    blocks[0].write_bytes(blocks[0].read_bytes()[:-1])
    assert file.read(0, 3 * BLOCK) == b"x" * 3 * BLOCK
    server.put("cached/x.log", b"y" * 3 * BLOCK)
    settings = RemoteSettings(memory_bytes=0, cache_dir=str(tmp_path), cache_bytes=8 * BLOCK)
    directory = open_directory("s3://bucket/cached", settings)
    assert directory.open("x.log").read(0, 3 * BLOCK) == b"y" * 3 * BLOCK
    server.proxy.requests.clear()
    assert directory.open("x.log").read(0, 3 * BLOCK) == b"y" * 3 * BLOCK
    assert not server.proxy.requests


def test_blocks_in_memory_are_bounded() -> None:
    cache = BlockCache(100)
    for number in range(10):
        cache.put(("x", number), bytes(30))
    assert [number for number in range(10) if cache.has(("x", number))] == [7, 8, 9]
    assert cache.get(("x", 7)) == bytes(30)
    cache.put(("x", 10), bytes(30))
    assert not cache.has(("x", 8))
    cache.put(("y", 0), bytes(101))
    assert not cache.has(("y", 0))


def test_blocks_that_arrived_together_go_together() -> None:
    cache = BlockCache(4 * BLOCK)
    run = bytes(BLOCK) + b"1" * BLOCK + b"2" * 7
    cache.put(("x", 5), run)
    assert [number for number in range(10) if cache.has(("x", number))] == [5, 6, 7]
    assert cache.get(("x", 6)) == b"1" * BLOCK
    assert cache.get(("x", 7)) == b"2" * 7
    cache.put(("x", 6), b"3" * BLOCK)  # no block is in two runs
    assert [number for number in range(10) if cache.has(("x", number))] == [6]
    cache.put(("y", 0), bytes(4 * BLOCK))
    assert not cache.has(("x", 6))


def test_a_cache_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    (tmp_path / "blocks").write_text("a file")
    disk = DiskCache(str(tmp_path), 100)
    disk.put(("x", 0), b"data")
    assert disk.get(("x", 0)) is None


@pytest.mark.parametrize(
    ("text", "size"), [("/c,4GiB", 4 << 30), ("/c,100", 100), ("/c, 5M", 5 << 20), ("/c,2kB", 2048)]
)
def test_the_size_of_a_cache(text: str, size: int) -> None:
    assert cache_of(text) == ("/c", size)


@pytest.mark.parametrize("text", ["/c", "/c,", ",4GiB", "/c,-1", "/c,1.5G", "/c,1PB"])
def test_what_is_no_size_of_a_cache(text: str) -> None:
    with pytest.raises(ValueError, match="must be DIR,SIZE"):
        cache_of(text)


def listed(path: str, size: object = 1, kind: FileType = FileType.FILE) -> Listed:
    return Listed(path, kind, size, 0, "", None)


def test_a_hostile_listing() -> None:
    snapshot = Snapshot(
        "s3://b/x",
        [
            listed("t-0/00000000000000000000.log"),
            listed("t-0/../../etc/passwd"),
            listed("a//b"),
            listed("/absolute"),
            listed("."),
            listed("t-0/" + "n" * 300),
            listed("nul\0"),
            listed("t-0/odd\n\x1b[31m"),
            listed("t-0/negative", -1),
            listed("t-0/absurd", 1 << 64),
            listed("t-0/none", None),
            listed("t-0/text", "12"),
            listed("both"),
            listed("both/file"),
            listed("later/file"),
            listed("later"),
            listed("marker/"),
            listed("marker/", 0),
            listed("twice", 1),
            listed("twice", 2),
        ],
    )
    children = snapshot.root.children
    assert children is not None
    assert sorted(children) == ["both", "later", "marker", "t-0", "twice"]
    assert children["twice"].size == 2
    assert all(children[name].kind is FileType.DIRECTORY for name in ("both", "later", "marker"))
    inner = children["t-0"].children
    assert inner is not None
    malformed = [name for name, each in inner.items() if each.kind is FileType.MALFORMED]
    assert sorted(malformed) == ["absurd", "negative", "none", "text"]
    assert "odd\n\x1b[31m" in inner
    assert len(snapshot.problems) == 7
    assert all("\x1b" not in line and "\n" not in line for line in snapshot.problems)


def test_names_of_a_bucket_that_are_no_names_are_problems(
    server: s3.S3, corpus: Callable[[str], Path]
) -> None:
    url = server.upload(corpus("kafka28"), "odd")
    server.put("odd/a//b", b"x")
    server.put("odd/orders-0/", b"")
    engine = Engine(url)
    assert f"{url}/a//b: not a valid file name, not served" in engine.problems
    assert "orders" in engine.topics()


def test_the_segments_that_follow_are_read_ahead(server: s3.S3) -> None:
    names = [f"{base:020}.log" for base in range(0, 60, 10)]
    for name in names:
        server.put(f"following/t-0/{name}", name.encode())
    settings = RemoteSettings(memory_bytes=64 << 20)
    directory = open_directory("s3://bucket/following", settings).child("t-0")

    def read(name: str) -> None:
        assert directory.open(name).read(0, 100) == name.encode()

    directory.list()
    server.proxy.requests.clear()
    read(names[1])  # as for a look-up
    assert len(server.proxy.requests) == 1
    read(names[2])
    wait_until(lambda: len(server.proxy.requests) == 5)
    for name in names[3:]:
        read(name)
    assert len(server.proxy.requests) == 5
