"""Tests of backups in object stores: an S3 server, with failing requests, and fsspec's memory."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.backup.keeping import Keep
from kafkafs.storage.backup.layout import STORE_LOCK
from kafkafs.storage.backup.open_repository import open_repository, writable_repository
from kafkafs.storage.errors import CorruptError, LogDirError
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.io.opening import forget
from kafkafs.storage.io.remote import lock, requests
from kafkafs.storage.io.remote.lock import StoreLock
from kafkafs.storage.io.remote.writing import WritableStore
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.backup.copier import Copier
from kafkafs.storage.operations.backup.points import list_points, prune_points, verify_points
from kafkafs.storage.operations.revive.request import Revive
from kafkafs.storage.operations.revive.revive import revive
from tests import s3
from tests.backups import back_up, check, contents, failures_in
from tests.conftest import differences, fingerprint
from tests.crash.moments import moments
from tests.s3 import BUCKET, S3, Fault
from tests.waiting import PATIENCE_SECONDS, wait_until

LARGE = 70_000  # beyond what shares an object with others


def append(source: Path, count: int) -> None:
    with LogManager(str(source)) as engine:
        for number in range(count):
            record = SimpleRecord(number, b"k", os.urandom(LARGE - 1000))
            engine.writer("orders", 0).append_records(RecordColumns.from_records([record]))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    with LogManager(str(path)) as engine:
        engine.create_topic("orders", 1, {"internal.segment.bytes": str(LARGE)})
        engine.create_topic("__consumer_offsets", 1)
    append(path, 2)
    return path


@pytest.fixture(scope="module")
def served() -> Iterator[S3]:
    with s3.serving() as server:
        yield server


@pytest.fixture
def server(served: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    monkeypatch.setattr(requests, "_FIRST_PAUSE", 0.001)
    served.proxy.reset()
    yield served
    served.proxy.reset()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "SETTLE_SECONDS", 0.0)


@pytest.fixture
def bucket(server: S3) -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}/backup"


@pytest.fixture
def memory() -> str:
    return f"memory://{uuid.uuid4().hex}/backup"


@pytest.fixture(params=["bucket", "memory"])
def url(request: pytest.FixtureRequest) -> str:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, str)
    return found


def test_the_life_of_a_backup(source: Path, url: str, tmp_path: Path) -> None:
    before = fingerprint(source)
    first = back_up(source, url)
    assert contents(url) == contents(source)
    assert differences(before, fingerprint(source)) == []
    append(source, 1)
    second = back_up(source, url)
    assert LARGE - 1000 < second.stored < 1.1 * LARGE
    assert contents(url) == contents(source)
    assert len(contents(first.manifest)["orders", 0][0]) == 2
    assert len(contents(url, at_ms=first.time_ms)["orders", 0][0]) == 2
    assert check(url) == 2
    listed: list[Any] = list(list_points(url))
    assert [each.manifest for each in listed] == [first.manifest, second.manifest]
    list(revive(Engine(url), Revive(str(tmp_path / "new"))))
    assert contents(tmp_path / "new" / "data") == contents(source)
    pruned = prune_points(url, Keep(last=1))
    assert [each.is_kept for each in pruned.points] == [False, True]
    assert check(url) == 1
    assert contents(url) == contents(source)


def test_a_backup_of_a_url(source: Path, server: S3, url: str, tmp_path: Path) -> None:
    """And one in an archive is read."""
    there = server.upload(source, uuid.uuid4().hex)
    back_up(there, url)
    back_up(there, tmp_path / "backup")
    assert contents(url) == contents(source)
    with pytest.raises(LogDirError, match="would be in the log directory"):
        back_up(there, f"{there}/backup")
    archive = tmp_path / "backup.tar"
    subprocess.run(["tar", "-cf", archive, "-C", tmp_path, "backup"], check=True)
    assert contents(archive) == contents(source)
    with pytest.raises(LogDirError, match="read-only: an archive"):
        back_up(source, archive)


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("https://127.0.0.1:1/x", "cannot be written to"),
        ("sftp://127.0.0.1:1/x", "cannot be written to"),
        ("s3://no-such-bucket/x", "no such bucket"),
    ],
)
def test_urls_that_cannot_be_written(source: Path, server: S3, where: str, why: str) -> None:
    with pytest.raises(LogDirError, match=why):
        back_up(source, where)


def test_a_place_with_other_things_is_refused(source: Path, memory: str) -> None:
    WritableStore(memory).put("letter", b"dear")
    with pytest.raises(LogDirError, match="neither empty nor a backup"):
        back_up(source, memory)
    assert WritableStore(memory).get(STORE_LOCK) is None


class TestFailures:
    def test_requests_that_fail_once(self, source: Path, server: S3, bucket: str) -> None:
        """Each of them: also those that the server carried out, but whose answer is lost."""
        faults = {False: Fault(status=503), True: Fault(resets=True)}
        seen: Counter[str] = Counter()

        def fault(method: str, path: str) -> Fault | None:
            if "HEAD" in method:  # has no body to break off
                return None
            seen[path] += 1
            return faults[method == "PUT"] if seen[path] % 2 else None

        server.proxy.fault = fault
        back_up(source, bucket)
        server.proxy.reset()
        assert len(seen) > 6
        assert contents(bucket) == contents(source)
        assert check(bucket) == 1
        assert WritableStore(bucket).get(STORE_LOCK) is None

    def test_a_run_that_fails_is_continued(self, source: Path, server: S3, bucket: str) -> None:
        def fault(method: str, path: str) -> Fault | None:
            return Fault(status=403) if method == "PUT" and "/points/" in path else None

        server.proxy.fault = fault
        with pytest.raises(PermissionError):
            back_up(source, bucket)
        server.proxy.reset()
        assert open_repository(bucket).times() == []
        with pytest.raises(LogDirError, match="no point in time yet"):
            Engine(bucket)
        assert back_up(source, bucket).stored < LARGE
        stored = [path for method, path, _ in server.proxy.requests if method == "PUT"]
        assert not any("/objects/orders-0/" in path for path in stored)
        assert contents(bucket) == contents(source)

    def test_an_object_that_is_missing_or_changed(
        self, source: Path, server: S3, bucket: str
    ) -> None:
        back_up(source, bucket)
        point = open_repository(bucket).point(open_repository(bucket).times()[0])
        name, other = [name for name in point.objects if name.startswith("orders-0/")]
        engine = Engine(bucket)
        store = WritableStore(bucket)
        store.put(f"objects/{name}", bytes(point.objects[name].size))
        forget(bucket)
        (failure,) = failures_in(verify_points(bucket))
        assert name in failure
        with pytest.raises(CorruptError, match="missing, or another one by now"):
            engine.log_dirs.dirs[0].directory.child("orders-0").open(
                "00000000000000000000.log"
            ).read(0, 10)
        store.remove([f"objects/{other}"])
        forget(bucket)
        assert len(failures_in(verify_points(bucket))) == 2
        back_up(source, bucket)  # stores what is missing
        assert len(failures_in(verify_points(bucket))) == 1


def killed(source: Path, url: str, server: S3, moment: int, *, is_done: bool) -> int:
    """Runs a backup that is killed at its change of this number, which the server carries out or
    does not. Returns how many changes it asked for."""
    changes = itertools.count(1)
    process = subprocess.Popen(
        [sys.executable, "-c", _BACKUP, source, url], env={**os.environ, **server.environment}
    )

    def fault(method: str, path: str) -> Fault | None:
        if method not in ("PUT", "POST", "DELETE"):
            return None
        change = next(changes)
        if change == moment:
            process.kill()
        return None if change < moment or (change == moment and is_done) else Fault(status=500)

    server.proxy.fault = fault
    process.wait(PATIENCE_SECONDS)
    server.proxy.reset()
    forget(url)
    return next(changes) - 1


_BACKUP = """
import sys
from kafkafs.storage.io.remote import lock
from tests.backups import back_up
lock.SETTLE_SECONDS = 0.0
back_up(*sys.argv[1:])
"""


@pytest.mark.slow
def test_a_run_that_is_killed_at_any_change(source: Path, server: S3, tmp_path: Path) -> None:
    """What was there stays, nothing half-written is seen, and the next run needs no help."""
    grown = Path(shutil.copytree(source, tmp_path / "grown"))
    append(grown, 2)
    old, new = contents(source), contents(grown)

    def prepared() -> tuple[str, int]:
        url = f"s3://{BUCKET}/{uuid.uuid4().hex}/backup"
        return url, back_up(source, url).time_ms

    url, _ = prepared()
    count = killed(grown, url, server, sys.maxsize, is_done=True)
    assert contents(url) == new
    assert count > 6
    for moment in moments(2 * count - 1, every=5):
        url, first_ms = prepared()
        assert killed(grown, url, server, moment // 2 + 1, is_done=moment % 2 == 1) >= moment // 2
        assert contents(url) == (old if check(url) == 1 else new), moment
        back_up(grown, url)
        assert contents(url) == new, moment
        assert contents(url, at_ms=first_ms) == old, moment
        assert WritableStore(url).get(STORE_LOCK) is None
        check(url)


class TestLock:
    def test_two_runs_exclude_each_other(self, source: Path, url: str) -> None:
        back_up(source, url)
        with writable_repository(url):
            with pytest.raises(LogDirError, match=f"process {os.getpid()} is writing to this"):
                back_up(source, url)
            with pytest.raises(LogDirError, match="is writing to this backup"):
                prune_points(url, Keep(last=1))
            assert contents(url) == contents(source)  # reading needs no lock
        back_up(source, url)
        assert check(url) == 2

    def hold(self, url: str, **changes: object) -> bytes:
        """Leaves the lock of another process."""
        store = WritableStore(url)
        held = StoreLock(store, STORE_LOCK)
        content = store.get(STORE_LOCK) or b""
        held.release()
        other = json.dumps({**json.loads(content), "id": "other", **changes}).encode()
        store.put(STORE_LOCK, other)
        return other

    def test_the_lock_of_a_process_that_was_killed(self, source: Path, url: str) -> None:
        with subprocess.Popen(["sleep", "60"]) as process:
            process.kill()
        self.hold(url, pid=process.pid)
        back_up(source, url)
        assert check(url) == 1

    def test_the_number_of_a_process_that_ended_is_that_of_another(
        self, source: Path, memory: str
    ) -> None:
        self.hold(memory, started="1")
        back_up(source, memory)
        assert check(memory) == 1

    @pytest.mark.parametrize("content", [{"processes": "other"}, {"pid": "x", "host": 5}])
    def test_the_lock_of_another_machine(
        self, source: Path, memory: str, monkeypatch: pytest.MonkeyPatch, content: dict[str, object]
    ) -> None:
        there = self.hold(memory, **{"processes": "other", **content})
        with pytest.raises(LogDirError, match="is writing to this backup"):
            back_up(source, memory)
        store = WritableStore(memory)
        assert store.get(STORE_LOCK) == there
        monkeypatch.setattr(lock, "LEASE_SECONDS", -60.0)  # it is silent for too long
        back_up(source, memory)
        assert store.get(STORE_LOCK) is None
        assert [name for name in store.snapshot().root.children or () if "lock" in name] == []

    def test_a_run_that_lost_the_lock_changes_nothing(
        self, source: Path, memory: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        back_up(source, memory)
        finish = Copier.finish

        def lose(copier: Copier) -> None:
            finish(copier)
            WritableStore(memory).put(STORE_LOCK, b"{}")

        monkeypatch.setattr(Copier, "finish", lose)
        with pytest.raises(LogDirError, match="another process took over the lock"):
            back_up(source, memory)
        assert open_repository(memory).times() == open_repository(memory).times()[:1]
        assert WritableStore(memory).get(STORE_LOCK) == b"{}"  # which is not ours to remove

    def test_the_holder_writes_it_again(self, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lock, "RENEW_SECONDS", 0.001)
        store = WritableStore(memory)
        written: list[str] = []
        replace = store.replace

        def note(name: str, data: bytes, version: str) -> bool:
            written.append(name)
            return replace(name, data, version)

        monkeypatch.setattr(store, "replace", note)
        held = StoreLock(store, STORE_LOCK)
        wait_until(lambda: len(written) > 2)
        held.check()
        held.release()
        assert store.get(STORE_LOCK) is None

    def test_a_store_that_ignores_conditions(
        self, memory: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of two at the same time, one has the lock: the one that wrote last."""
        put = WritableStore._put
        others: list[Callable[[], object]] = []

        def ignore(store: WritableStore, name: str, data: bytes, **how: object) -> bool:
            return put(store, name, data)

        monkeypatch.setattr(WritableStore, "_put", ignore)
        monkeypatch.setattr(time, "sleep", lambda seconds: others and others.pop()())
        StoreLock(WritableStore(memory), STORE_LOCK).release()
        others.append(lambda: WritableStore(memory).put(STORE_LOCK, b'{"pid": 7, "host": "x"}'))
        with pytest.raises(LogDirError, match="process 7 on the host x holds the lock"):
            StoreLock(WritableStore(memory), STORE_LOCK)
