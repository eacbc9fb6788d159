"""Directories on servers other than S3: each is listed, read, and seen to change."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import fsspec
import paramiko
import pytest
from hdfs_native.fsspec import HdfsFileSystem

from kafkafs.storage.errors import LogDirError, SegmentGone
from kafkafs.storage.io.directory import Directory
from kafkafs.storage.io.local_path import location
from kafkafs.storage.io.opening import open_directory
from kafkafs.storage.io.remote import requests
from kafkafs.storage.io.remote import servers as remote_servers
from kafkafs.storage.io.remote.settings import RemoteSettings
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_dirs.engine import Engine
from tests import answers, servers
from tests.hdfs import hdfs
from tests.waiting import wait_until

CORPUS = "kafka43-clean"
Corpus = Callable[[str], Path]
FRESH = RemoteSettings(list_ms=0, memory_bytes=0, timeout_ms=10_000)


@dataclass(frozen=True)
class Place:
    """A directory on a server, and how its files are written and removed."""

    url: str
    write: Callable[[str, bytes], object]
    remove: Callable[[str], object]


def local(url: str, directory: Path) -> Place:
    """Returns a place that serves a local directory."""

    def write(name: str, data: bytes) -> None:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.stat().st_mtime if path.exists() else 1_000_000_000
        path.write_bytes(data)
        os.utime(path, (before + 5, before + 5))  # servers tell whole seconds

    return Place(url, write, lambda name: (directory / name).unlink())


def through(filesystem: Any, url: str, prefix: str) -> Place:
    """Returns a place that fsspec writes to."""
    return Place(
        url,
        lambda name, data: filesystem.pipe_file(f"{prefix}/{name}", data),
        lambda name: filesystem.rm_file(f"{prefix}/{name}"),
    )


@contextmanager
def serving(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    if kind == "file":
        yield local(f"file://{tmp_path}", tmp_path)
    elif kind == "memory":
        memory = fsspec.filesystem("memory")
        yield through(memory, f"memory:/{tmp_path}", str(tmp_path))
        memory.rm(str(tmp_path), recursive=True)
    elif kind in ("http", "http-whole-files"):
        with servers.web(tmp_path, knows_ranges=kind == "http") as url:
            yield local(url, tmp_path)
    elif kind == "sftp":
        with servers.sftp() as server:
            known(server, tmp_path, monkeypatch)
            yield local(server.url + str(tmp_path), tmp_path)
    elif kind == "gs":
        with google(tmp_path, monkeypatch) as place:
            yield place
    else:
        with azure(tmp_path, monkeypatch) as place:
            yield place


def known(server: servers.Sftp, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home / ".home"))
    (home / ".home/.ssh").mkdir(parents=True)
    paramiko.ECDSAKey.generate().write_private_key_file(str(home / ".home/.ssh/id_ecdsa"))
    (home / ".home/.ssh/known_hosts").write_text(server.known_host())


@contextmanager
def running(command: list[str]) -> Iterator[None]:
    path = shutil.which(command[0])
    if path is None:
        pytest.fail(f"KAFKAFS_STORES=all needs {command[0]} on the PATH")
    with subprocess.Popen([path, *command[1:]], stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    port = free_port()
    at = f"127.0.0.1:{port}"
    words = ["fake-gcs-server", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    with running([*words, "-backend", "memory", "-public-host", at, "-log-level", "error"]):
        wait_until(lambda: is_open(port))
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{at}")
        # Without credentials it asks for the kind of bucket at each request, with a warning.
        monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        filesystem = fsspec.filesystem("gs", skip_instance_cache=True, project="x")
        filesystem.mkdir("bucket")
        yield through(filesystem, "gs://bucket/logs", "bucket/logs")


@contextmanager
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    port = free_port()
    words = ["azurite-blob", "--silent", "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    options = ["--location", str(tmp_path), "--skipApiVersionCheck", "--disableTelemetry"]
    with running([*words, *options]):
        wait_until(lambda: is_open(port))
        # The account of Azurite that is published in its documentation.
        key = (
            "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/"
            "KBHBeksoGMGw=="
        )
        account = "devstoreaccount1"
        monkeypatch.setenv(
            "AZURE_STORAGE_CONNECTION_STRING",
            f"DefaultEndpointsProtocol=http;AccountName={account};AccountKey={key};"
            f"BlobEndpoint=http://127.0.0.1:{port}/{account};",
        )
        filesystem = fsspec.filesystem("abfs", skip_instance_cache=True)
        filesystem.mkdir("bucket")
        yield through(filesystem, "abfs://bucket/logs", "bucket/logs")


QUICK = ["file", "memory", "http", "http-whole-files", "sftp"]
# Their emulators, fake-gcs-server and Azurite, come neither from Debian nor from PyPI.
BY_HAND = pytest.mark.skipif(
    os.environ.get("KAFKAFS_STORES") != "all", reason="not KAFKAFS_STORES=all"
)
OF_JAVA = pytest.param("hdfs", marks=pytest.mark.slow)
SLOW = [pytest.param(kind, marks=[pytest.mark.slow, BY_HAND]) for kind in ("gs", "abfs")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hdfs(tmp_path_factory.mktemp("hdfs")) as url:
        yield url


def hdfs_client(url: str) -> HdfsFileSystem:
    return HdfsFileSystem("127.0.0.1", int(url.rpartition(":")[2]), skip_instance_cache=True)


@pytest.fixture(name="place", params=[*QUICK, OF_JAVA, *SLOW])
def _place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    monkeypatch.setattr(requests, "_FIRST_PAUSE", 0.001)
    if request.param == "hdfs":
        url = request.getfixturevalue("cluster")
        yield through(hdfs_client(url), f"{url}{tmp_path}", str(tmp_path))
        return
    with ExitStack() as stack:
        yield stack.enter_context(serving(request.param, tmp_path, monkeypatch))


def test_a_log_is_read_as_from_a_disk(place: Place, corpus: Corpus) -> None:
    whole = corpus(CORPUS)
    files = [path for part in ("*", "orders-0/*") for path in whole.glob(part) if path.is_file()]
    with ThreadPoolExecutor() as threads:  # HDFS takes a second for each file
        names = (str(path.relative_to(whole)) for path in files)
        list(threads.map(place.write, names, (path.read_bytes() for path in files)))
    engine = Engine(location(place.url))
    assert engine.topics().keys() == {"orders"}
    view = engine.log("orders", 0).view()
    found = [
        (r.offset, r.key, r.value)
        for columns in view.read()
        for r in map(columns.record, range(len(columns)))
    ]
    assert found
    expected = list(answers.records(CORPUS, "orders", 0, Isolation.READ_COMMITTED.value))
    assert found == [(r.offset, r.key, r.value) for r in expected]
    sought = expected[len(expected) // 2]
    assert view.find(sought.offset).value == sought.value
    assert not [line for line in engine.problems if ".home" not in line]


def test_a_file_that_changes_is_not_mixed_with_what_it_was(place: Place) -> None:
    place.write("t-0/x.log", b"before" * 1000)
    place.write("t-0/y.log", b"remains")
    directory = open_directory(location(place.url), FRESH).child("t-0")
    file = directory.open("x.log")
    assert file.read(6, 12) == b"beforebefore"
    place.write("t-0/x.log", b"after!" * 1000)
    if not place.url.startswith("file:"):  # an open file of a disk is the old one
        with pytest.raises(SegmentGone, match=r"/t-0/x\.log"):
            file.read(12, 6)
    new = directory.open("x.log")
    assert new.read(0, 6) == b"after!"
    place.remove("t-0/x.log")
    if not place.url.startswith("file:"):
        with pytest.raises(SegmentGone, match=r"/t-0/x\.log"):
            new.read(12, 6)
    assert [each.name for each in directory.list()] == ["y.log"]
    with pytest.raises(SegmentGone, match=r"/t-0/x\.log"):
        directory.open("x.log")


def test_a_directory_that_does_not_exist(place: Place) -> None:
    place.write("t-0/x.log", b"x")
    with pytest.raises(LogDirError, match="no such directory"):
        Engine(f"{place.url}/other")


def test_a_web_server_without_ranges_and_a_large_file(tmp_path: Path) -> None:
    with (tmp_path / "x.log").open("wb") as file:
        file.truncate(33 << 20)
    with servers.web(tmp_path, knows_ranges=False) as url:
        opened = open_directory(url, FRESH).open("x.log")
        with pytest.raises(OSError, match="the server sends only whole files") as raised:
            opened.read(0, 10)
        assert (raised.value.errno, raised.value.filename) == (errno.EIO, f"{url}/x.log")


def test_a_host_that_ssh_does_not_know_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with servers.sftp() as server, pytest.raises(LogDirError, match="known_hosts"):
        open_directory(f"{server.url}{tmp_path}").list()


def test_a_connection_that_breaks_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_FIRST_PAUSE", 0.001)
    (tmp_path / "x.log").write_bytes(b"0123456789")
    with servers.sftp() as server:
        known(server, tmp_path, monkeypatch)
        file = open_directory(f"{server.url}{tmp_path}", FRESH).open("x.log")
        assert file.read(0, 4) == b"0123"
        server.disconnect()
        assert file.read(4, 4) == b"4567"


def tree(directory: Path) -> None:
    for name in ("a-0", "b-0", "c-0"):
        (directory / "logs" / name).mkdir(parents=True)
        (directory / "logs" / name / "x.log").write_bytes(b"0123456789")


def check_that_b_is_forbidden(root: Directory) -> None:
    """A directory that cannot be listed is not an empty one, and the others are served."""
    assert sorted(entry.name for entry in root.list()) == ["a-0", "b-0", "c-0"]
    with pytest.raises(PermissionError, match="Permission denied") as raised:
        root.child("b-0").list()
    assert raised.value.filename == f"{root.path}/b-0"
    for name in ("a-0", "c-0"):
        assert root.child(name).open("x.log").read(0, 10) == b"0123456789"


def test_a_directory_that_sftp_does_not_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path)
    with servers.sftp() as server:
        known(server, tmp_path, monkeypatch)
        server.forbidden.add(f"{tmp_path}/logs/b-0")
        check_that_b_is_forbidden(open_directory(f"{server.url}{tmp_path}/logs", FRESH))


def test_a_directory_that_a_web_server_does_not_list(tmp_path: Path) -> None:
    tree(tmp_path)
    with servers.web(
        tmp_path, fault=lambda path: HTTPStatus.FORBIDDEN if path == "/logs/b-0/" else None
    ) as url:
        check_that_b_is_forbidden(open_directory(f"{url}/logs", FRESH))


def test_a_directory_that_cannot_be_listed_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_FIRST_PAUSE", 0.001)
    tree(tmp_path)
    failing = ["/logs/b-0/"] * 2

    def fault(path: str) -> HTTPStatus | None:
        if path not in failing:
            return None
        failing.remove(path)
        return HTTPStatus.SERVICE_UNAVAILABLE

    with servers.web(tmp_path, fault=fault) as url:
        logs = open_directory(f"{url}/logs", FRESH)
        assert [entry.name for entry in logs.child("b-0").list()] == ["x.log"]
    assert not failing
    with servers.sftp() as server:
        known(server, tmp_path, monkeypatch)
        server.breaking.add(f"{tmp_path}/logs/b-0")
        logs = open_directory(f"{server.url}{tmp_path}/logs", FRESH)
        assert [entry.name for entry in logs.child("b-0").list()] == ["x.log"]
        assert not server.breaking


def test_a_web_server_that_is_not_there_is_not_an_empty_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "_FIRST_PAUSE", 0.001)
    url = f"http://127.0.0.1:{free_port()}/logs"
    with pytest.raises(OSError, match="Connection refused") as raised:
        open_directory(url, FRESH).list()
    assert (raised.value.errno, raised.value.filename) == (errno.EIO, url)


def test_pages_that_link_to_themselves(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<a href="./">.</a> <a href="../">..</a> <a href="x">')
    (tmp_path / "x").write_text("0123456789")
    with servers.web(tmp_path) as url:
        assert [entry.name for entry in open_directory(f"{url}/", FRESH).list()] == ["x"]


def test_directories_without_end() -> None:
    def list_all(paths: Sequence[str]) -> Sequence[remote_servers.Answer]:
        return [[{"name": f"{path}/x", "type": "directory"}] for path in paths]

    with pytest.raises(LogDirError, match="has directories more than 64 deep"):
        remote_servers.walk("x", list_all)


def test_threads_share_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(256)) * (8 << 10)
    (tmp_path / "x.log").write_bytes(data)
    found: dict[int, bytes] = {}
    with servers.sftp() as server:
        known(server, tmp_path, monkeypatch)
        file = open_directory(f"{server.url}{tmp_path}", FRESH).open("x.log")

        def read(position: int) -> None:
            found[position] = file.read(position, 70_000)

        threads = [threading.Thread(target=read, args=(at,)) for at in range(0, 1 << 20, 1 << 17)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {at: data[at : at + 70_000] for at in range(0, 1 << 20, 1 << 17)}


@pytest.mark.slow
def test_a_directory_of_hdfs_that_must_not_be_read(
    cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hdfs_client(cluster).mkdir("/secret", permission=0o700)
    hdfs_client(cluster).pipe_file("/secret/x.log", b"x")
    monkeypatch.setenv("HADOOP_USER_NAME", "someone-else")
    with pytest.raises(PermissionError) as raised:
        open_directory(f"{cluster}/secret", FRESH).list()
    assert raised.value.filename == f"{cluster}/secret"


def test_an_hdfs_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(requests, "ATTEMPTS", 2)
    hasty = RemoteSettings(list_ms=0, memory_bytes=0, timeout_ms=10)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"hdfs://127.0.0.1:{silent.getsockname()[1]}/logs"
        with pytest.raises(OSError, match="the server did not answer in time") as raised:
            open_directory(url, hasty).list()
    assert (raised.value.errno, raised.value.filename) == (errno.EIO, url)
    with pytest.raises(OSError, match="Connection refused") as raised:
        open_directory(url, FRESH).list()
    assert (raised.value.errno, raised.value.filename) == (errno.EIO, url)
