"""Every verb that reads prints of log directories at a URL what it prints of those on a disk."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import fsspec
import pytest
from click.testing import CliRunner

from kafkafs.cli.main import cli

Corpus = Callable[[str], Path]
URL = "memory://reading"
#: The words of each verb; DIR is the log directory.
LINES = [
    "ls DIR",
    "ls DIR orders/0/segments",
    "cat DIR orders/0/records.jsonl",
    "cat DIR orders/0/offset/600",
    "stat DIR orders/0/offset/600",
    "explain DIR orders/0/offset/600",
    "history DIR compacted/0 key-1",
    "dump --print-data-log DIR/txn-0/00000000000000000000.log",
    "dump DIR/orders-0/00000000000000000000.index",
    "groups DIR",
    "cluster DIR",
    "schemas DIR",
    "why DIR orders/0",
    "verify DIR orders/0",
    "diff DIR DIR",
    "report --output OUT DIR",
    "export DIR orders --to OUT --format json",
    "topic list DIR",
    "transactions DIR --list",
]


@pytest.fixture(scope="module", autouse=True)
def _uploaded(corpus: Corpus) -> Iterator[None]:
    memory = fsspec.filesystem("memory")
    source = corpus("kafka43-clean")
    for path in source.rglob("*"):
        if path.is_file():
            memory.pipe_file(f"/reading/{path.relative_to(source)}", path.read_bytes())
    yield
    memory.rm("/reading", recursive=True)


def run(line: str, log_dir: str, out: Path) -> tuple[int, list[str], str]:
    """Returns exit code, the words printed, and the names and sizes of files written."""
    line = line.replace("DIR", log_dir).replace("OUT", str(out / "out"))
    done = CliRunner().invoke(cli, line.split())
    assert done.exception is None or isinstance(done.exception, SystemExit)
    text = (done.stdout + done.stderr).replace(log_dir, "DIR").replace(str(out), "OUT")
    written = sorted(str(path.relative_to(out)) for path in out.rglob("*"))
    return done.exit_code, text.split(), str(written)


@pytest.mark.parametrize("line", LINES)
def test_a_verb_reads_a_url(line: str, corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    there = run(line, URL, tmp_path / "a")
    here = run(line, str(corpus("kafka43-clean")), tmp_path / "b")
    assert there == here
    assert there[1] or there[2] != "[]" or line == "diff DIR DIR"


def test_sql_of_a_url() -> None:
    query = "SELECT count(*) FROM orders"
    done = CliRunner().invoke(cli, ["sql", URL, query])
    assert (done.exit_code, done.stdout.split()[-1], done.stderr) == (0, "20000", "")


@pytest.mark.parametrize(
    ("url", "missing", "needed"),
    [
        ("s3://bucket/x", "fsspec", "fsspec and s3fs"),
        ("s3://bucket/x", "s3fs", "fsspec and s3fs"),
        ("gs://bucket/x", "gcsfs", "fsspec and gcsfs"),
        ("abfs://bucket/x", "adlfs", "fsspec and adlfs"),
        ("https://host/x", "aiohttp", "fsspec and aiohttp"),
        ("sftp://host/x", "paramiko", "fsspec and paramiko"),
        ("hdfs://host/x", "hdfs_native", "fsspec and hdfs-native"),
    ],
)
def test_what_is_not_installed_is_named(
    url: str, missing: str, needed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in (missing, "fsspec")]:
        monkeypatch.delitem(sys.modules, name)
    # Another test may have imported it, with what is not installed now.
    monkeypatch.delitem(sys.modules, "kafkafs.storage.io.remote.hdfs", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    done = CliRunner().invoke(cli, ["ls", url])
    scheme = url.partition(":")[0]
    extras = "remote,hdfs" if scheme == "hdfs" else "remote"
    why = f"reading {scheme}:// needs {needed}: pip install 'kafkafs[{extras}]'"
    assert (done.exit_code, done.stderr) == (1, f"kafkafs: {url}: {why}\n")


def test_no_reading_verb_is_left_out() -> None:
    """The verbs that --help lists as reading, except for those that need a broker or a backup."""
    context = click.Context(cli)
    text = cli.get_help(context)
    section = text.split("Verbs that change no log:")[1].split("Verbs that write:")[0]
    verbs = {line.split()[0] for line in section.splitlines() if line[:3].strip() and line.split()}
    assert verbs - {"restore", "backup", "sql"} == {line.split()[0] for line in LINES} - {
        "topic",
        "transactions",
    }
