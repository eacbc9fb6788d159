"""Log directories in archives: of each kind, damaged, and where their index is kept."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from kafkafs.storage.errors import LogDirError, SegmentGone
from kafkafs.storage.io.directory import Directory, FileType
from kafkafs.storage.io.opening import check_is_local, open_directory
from kafkafs.storage.io.remote.settings import RemoteSettings
from kafkafs.storage.log_dirs.engine import Engine
from tests import answers

KINDS = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".zip")


def pack(source: Path, target: Path) -> Path:
    """Makes an archive of a directory, by the suffix of its name."""
    above, name = str(source.parent), source.name
    if target.suffix == ".zip":
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
            for path in sorted(source.rglob("*")):
                file.write(path, path.relative_to(source.parent))
        return target
    options = "-czf" if target.name.endswith(("gz",)) else "-cf"
    plain = target.with_suffix("") if target.suffix == ".zst" else target
    subprocess.run(["tar", options, plain, "-C", above, name], check=True)
    if plain != target:
        target.write_bytes(zstandard.compress(plain.read_bytes()))
        plain.unlink()
    return target


def content(directory: Directory) -> dict[str, bytes]:
    """Returns all files below a directory, by path."""
    found: dict[str, bytes] = {}
    for entry in directory.list():
        if entry.is_dir:
            inner = content(directory.child(entry.name))
            found |= {f"{entry.name}/{name}": data for name, data in inner.items()}
        else:
            found[entry.name] = directory.read_small(entry.name, 1 << 30)
    return found


@pytest.mark.parametrize("suffix", KINDS)
def test_an_archive_has_what_was_put_into_it(
    suffix: str, corpus: Callable[[str], Path], tmp_path: Path
) -> None:
    source = corpus("kafka28")
    archive = pack(source, tmp_path / f"backup{suffix}")
    expected = content(open_directory(str(source)))
    assert content(open_directory(str(archive))) == expected
    inner = open_directory(f"{archive}/kafka28/v2-0")
    assert content(inner) == content(open_directory(str(source / "v2-0")))
    assert content(open_directory(f"{archive}/v2-0")) == content(inner)
    assert os.listdir(tmp_path) == [archive.name]  # nothing is beside it
    assert Engine(str(archive)).topics() == Engine(str(source)).topics()


def test_the_index_is_kept_in_the_cache(corpus: Callable[[str], Path], tmp_path: Path) -> None:
    archive = pack(corpus("kafka28"), tmp_path / "x.tar.gz")
    cache = tmp_path / "cache"
    Engine(str(archive), {"kafkafs.remote.cache": f"{cache},1MiB"})
    [index] = (cache / "archives").iterdir()
    before = index.stat().st_ino
    script = (
        "import sys; from kafkafs.storage import Engine;"
        "print(*Engine(sys.argv[1], {'kafkafs.remote.cache': sys.argv[2]}).topics())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, archive, f"{cache},1MiB"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "v2" in done.stdout.split()
    assert index.stat().st_ino == before
    assert sorted(os.listdir(tmp_path)) == ["cache", "x.tar.gz"]


@pytest.fixture(name="cache")
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of indexes in a user's cache directory that does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/kafkafs/archives"


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.zst"])
def test_without_a_config_the_index_is_kept_in_the_users_cache(
    suffix: str, corpus: Callable[[str], Path], tmp_path: Path, cache: Path
) -> None:
    archive = pack(corpus("kafka28"), tmp_path / f"x{suffix}")
    expected = content(open_directory(str(archive)))
    [index] = cache.iterdir()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    before = index.stat().st_ino
    assert content(open_directory(str(archive))) == expected
    assert [each.stat().st_ino for each in cache.iterdir()] == [before]
    # Another archive of the same name has an index of its own.
    other = tmp_path / "other"
    (other / "t-0").mkdir(parents=True)
    pack(other, archive)
    assert open_directory(str(archive)).child("t-0").list() == []
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("kept", [0, 100, 5000, -1])
def test_a_damaged_index_is_made_again(kept: int, tmp_path: Path, cache: Path) -> None:
    (tmp_path / "logs/t-0").mkdir(parents=True)
    (tmp_path / "logs/t-0/x.log").write_bytes(os.urandom(10_000))
    archive = pack(tmp_path / "logs", tmp_path / "x.tar.gz")
    expected = content(open_directory(str(archive)))
    [index] = cache.iterdir()
    data = index.read_bytes()
    index.write_bytes(b"no index" * 1000 if kept < 0 else data[:kept])
    assert content(open_directory(str(archive))) == expected
    assert content(open_directory(str(archive))) == expected


@pytest.mark.parametrize("what", ["file", "of others", "read-only file system"])
def test_without_a_cache_directory_the_index_is_not_kept(
    what: str, corpus: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = tmp_path / "cache"
    above.write_text("") if what == "file" else (above / "kafkafs/archives").mkdir(parents=True)
    if what == "of others":
        (above / "kafkafs/archives").chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/1" if what.startswith("read") else str(above))
    archive = pack(corpus("kafka28"), tmp_path / "x.tar.gz")
    assert "v2" in Engine(str(archive)).topics()
    assert [each for each in above.rglob("*") if each.is_file()] == []


def test_a_full_disk_of_the_cache_is_no_obstacle(
    corpus: Callable[[str], Path], tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = pack(corpus("kafka28"), tmp_path / "x.tar.gz")
    script = (
        "import resource, sys; from kafkafs.storage import Engine;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000));"
        "print(*Engine(sys.argv[1]).topics())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, archive], capture_output=True, text=True, check=True
    )
    assert "v2" in done.stdout.split()
    assert list(cache.iterdir()) == []


def test_the_index_of_a_truncated_archive_is_not_kept(tmp_path: Path, cache: Path) -> None:
    """It may be one that could not be read to its end only this time."""
    (tmp_path / "logs/t-0").mkdir(parents=True)
    for number in range(4):
        (tmp_path / f"logs/t-0/{number}.log").write_bytes(os.urandom(1 << 20))
    archive = pack(tmp_path / "logs", tmp_path / "x.tar.gz")
    os.truncate(archive, archive.stat().st_size * 2 // 3)
    for _ in range(2):
        assert open_directory(str(archive)).problems == [f"{archive}: the archive is truncated"]
        assert list(cache.iterdir()) == []


def test_two_processes_make_one_index(
    corpus: Callable[[str], Path], tmp_path: Path, cache: Path
) -> None:
    archive = pack(corpus("kafka28"), tmp_path / "x.tar.gz")
    script = "import sys; from kafkafs.storage import Engine; print(*Engine(sys.argv[1]).topics())"
    command = [sys.executable, "-c", script, str(archive)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = {process.communicate()[0] for process in both}
    assert len(outputs) == 1
    assert "v2" in outputs.pop().split()
    assert len(list(cache.iterdir())) == 1


def test_the_oldest_indexes_are_removed(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs/t-0").mkdir(parents=True)
    monkeypatch.setattr("kafkafs.storage.io.remote.archives.index._MOST_BYTES", 3 << 19)
    cache.mkdir(parents=True, mode=0o700)
    for name in ("0.index.sqlite", "1.index.sqlite.x.tmp", "2.index.sqlite", "other"):
        (cache / name).write_bytes(bytes(1 << 20))
        os.utime(cache / name, (1e9, 1e9 + len(os.listdir(cache))))
    archive = pack(tmp_path / "logs", tmp_path / "x.tar.gz")
    open_directory(str(archive)).list()
    left = {each.name for each in cache.iterdir()}
    assert {"2.index.sqlite", "other"} < left
    assert not left & {"0.index.sqlite", "1.index.sqlite.x.tmp"}
    assert len(left) == 3


@pytest.mark.parametrize("suffix", KINDS)
def test_a_file_of_another_kind_is_no_archive(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    for data in (b"", b"no archive", bytes(range(256)) * 64):
        path.write_bytes(data)
        with pytest.raises(LogDirError) as raised:
            Engine(str(path))
        assert raised.value.path.startswith(str(path))


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tar.zst"])
def test_of_a_truncated_archive_what_is_whole_is_served(suffix: str, tmp_path: Path) -> None:
    source = tmp_path / "logs"
    (source / "t-0").mkdir(parents=True)
    (source / "meta.properties").write_text("version=1\n")
    for number in range(4):
        (source / "t-0" / f"{number}.log").write_bytes(os.urandom(3 << 20))
    archive = pack(source, tmp_path / f"x{suffix}")
    size = archive.stat().st_size
    os.truncate(archive, size * 2 // 3)
    if suffix == ".tar.zst":  # one frame, which has no beginning of its own that could be used
        with pytest.raises(LogDirError, match=str(archive)):
            open_directory(str(archive))
        return
    directory = open_directory(str(archive))
    assert directory.problems == [f"{archive}: the archive is truncated"]
    names = [entry.name for entry in directory.child("t-0").list()]
    cut = []
    for name in names:
        try:
            data = directory.child("t-0").read_small(name, 1 << 30)
        except OSError as error:
            cut.append((error.errno, str(error.filename)))
        else:
            assert data == (source / "t-0" / name).read_bytes()
    assert len(cut) < len(names)
    assert all(number == errno.EIO and "/t-0/" in path for number, path in cut)


def test_an_archive_that_changes_is_never_mixed_with_what_it_was(
    corpus: Callable[[str], Path], tmp_path: Path
) -> None:
    archive = pack(corpus("kafka28"), tmp_path / "x.tar")
    file = open_directory(str(archive), RemoteSettings(memory_bytes=0)).open("meta.properties")
    with archive.open("ab") as target:
        target.write(bytes(10240))
    with pytest.raises(SegmentGone, match=str(archive)):
        file.read(0, 10)


def test_links_in_an_archive_are_not_followed(tmp_path: Path) -> None:
    source = tmp_path / "logs"
    (source / "t-0").mkdir(parents=True)
    (source / "t-0" / "a.log").symlink_to("/etc/passwd")
    (source / "t-1").symlink_to("t-0")
    archive = pack(source, tmp_path / "x.tar")
    directory = open_directory(str(archive))
    kinds = {entry.name: entry.kind for entry in directory.list()}
    assert kinds["t-1"] is FileType.SYMLINK
    assert [entry.kind for entry in directory.child("t-0").list()] == [FileType.SYMLINK]


def test_names_that_lead_out_of_an_archive(tmp_path: Path) -> None:
    archive = tmp_path / "x.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("t-0/x.log", b"sound")
        file.writestr("../../outside", b"hostile")
        file.writestr("/absolute", b"hostile")
    found = content(open_directory(str(archive)))
    assert found["t-0/x.log"] == b"sound"
    assert not any(".." in name or name.startswith("/") for name in found)


def test_an_archive_is_never_written_to() -> None:
    archive = str(answers.DATA / "corpora" / "kafka28.tar.gz")
    for path, what in ((archive, "an archive"), ("s3://bucket/x", "a URL")):
        with pytest.raises(LogDirError, match=f"{path}: is read-only: {what}"):
            check_is_local(path)
