"""Tests of `kafkafs completion`: the words offered to shells, and real shells completing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kafkafs.cli.main import cli
from kafkafs.cli.support import shells
from kafkafs.cli.support.path_completion import paths_from
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.building import BatchFields, build_batch
from tests.cli.results import Corpus, Kafkafs, stdout_of
from tests.cli.terminal import Terminal
from tests.logs import write_topic


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", [""]),
        ("kafkafs", ["kafkafs"]),
        ("kafkafs ", ["kafkafs", ""]),
        ("kafkafs ls /da", ["kafkafs", "ls", "/da"]),
        ("kafkafs ls '/my da", ["kafkafs", "ls", "/my da"]),
        ("kafkafs ls /my\\ da", ["kafkafs", "ls", "/my da"]),
        ("kafkafs ls /my\\", ["kafkafs", "ls", "/my"]),
        ("kafkafs ls '/my data' o", ["kafkafs", "ls", "/my data", "o"]),
    ],
)
def test_words_of_a_line(line: str, words: list[str]) -> None:
    assert shells.split(line) == words


def completed(line: str, shell: str = "fish", **environment: str) -> list[tuple[str, str]]:
    """Returns the type and value of each completion."""
    variables = {shells.COMPLETE_VARIABLE: f"{shell}_complete", "COMP_LINE": line, **environment}
    result = CliRunner(env=variables).invoke(cli, [])
    assert result.stderr == ""
    answers = [answer.split("\t") for answer in result.stdout.splitlines() if answer]
    return [(kind, value) for kind, value, _ in answers]


def values(line: str) -> list[str]:
    return [value for _, value in completed(line)]


def test_verbs() -> None:
    assert "explain" in values("kafkafs ")
    assert values("kafkafs ex") == ["explain", "expire", "export"]
    assert values("kafkafs topic ") == ["config", "create", "delete", "list"]


def test_options() -> None:
    assert values("kafkafs ls --is") == ["--isolation"]
    assert values("kafkafs ls --isolation read_u") == ["read_uncommitted"]
    assert values("kafkafs completion z") == ["zsh"]


def test_settings() -> None:
    assert completed("kafkafs expire -c log.retention.") == [
        ("part", f"log.retention.{name}=")
        for name in ("bytes", "check.interval.ms", "hours", "minutes", "ms")
    ]
    assert values("kafkafs topic config --add-config retention.") == [
        "retention.bytes=",
        "retention.ms=",
    ]
    assert values("kafkafs topic config --delete-config retention.m") == ["retention.ms"]
    assert values("kafkafs topic create --config log.") == []


def test_topics_and_partitions(corpus: Corpus) -> None:
    clean = corpus("kafka43-clean")
    assert completed(f"kafkafs append {clean} ord") == [("part", "orders/")]
    assert completed(f"kafkafs expire {clean} orders/") == [
        ("plain", f"orders/{number}") for number in range(3)
    ]
    assert values(f"kafkafs compact -n {clean} compacted") == ["compacted/", "compacted-dirty/"]
    assert values(f"kafkafs why {clean} orders/") == [f"orders/{number}" for number in range(3)]
    assert values(f"kafkafs verify {clean} orders/1 txn") == ["txn/", "txn-open/"]
    assert completed(f"kafkafs topic delete {clean} ord") == [("plain", "orders")]
    assert values(f"kafkafs topic config {clean} codec-g") == ["codec-gzip"]
    assert values(f"kafkafs append {clean}/nowhere ord") == []


def test_log_directories(tmp_path: Path) -> None:
    assert completed(f"kafkafs ls {tmp_path}/") == [("dir", f"{tmp_path}/")]
    for name in ("data1", "data2", ".hidden", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "data3").touch()
    given = f"{tmp_path}/data1,{tmp_path}"
    assert completed(f"kafkafs ls {given}/da") == [
        ("part", f"{given}/data1/"), ("part", f"{given}/data2/"),
    ]  # fmt: skip
    assert len(completed(f"kafkafs ls {given}/")) == 3
    assert completed(f"kafkafs ls {given}/nowhere/") == []


def test_paths_inside_log_directories(corpus: Corpus) -> None:
    start = f"kafkafs cat {corpus('kafka43-clean')}"
    assert completed(f"{start} ord") == [("part", "orders/")]
    assert completed(f"{start} orders/0/off") == [("part", "orders/0/offset/")]
    assert completed(f"{start} orders/0/rec") == [
        ("plain", "orders/0/records.jsonl"), ("plain", "orders/0/records.arrow"),
    ]  # fmt: skip
    assert values(f"{start} orders/0/offset/6670 orders/0/offset/667") == [
        f"orders/0/offset/{offset}" for offset in (667, 6670, 6671, 6672, 6673)
    ]
    assert values(f"{start} ./orders/0/off") == ["./orders/0/offset/"]
    assert ".kafkafs/" in values(f"{start} .")
    assert ".kafkafs/" not in values(f"{start} ")


def test_nothing_is_offered_where_nothing_can_be_read(tmp_path: Path, corpus: Corpus) -> None:
    assert completed(f"kafkafs cat {tmp_path} ord") == []
    clean = corpus("kafka43-clean")
    assert completed(f"kafkafs cat {clean} ordres/0/") == []
    assert completed(f"kafkafs cat {clean} orders/0/values/") == []


def test_not_more_is_offered_than_somebody_may_read(corpus: Corpus) -> None:
    assert len(paths_from((str(corpus("kafka43-clean")),), "orders/0/offset/")) == 500


def test_keys_of_the_last_records(corpus: Corpus, tmp_path: Path) -> None:
    start = f"kafkafs cat {corpus('kafka43-clean')} compacted/0/key"
    offered = values(f"{start}/key-1")
    assert offered
    assert all(path.startswith("compacted/0/key/key-1") for path in offered)
    assert values(f"{start}/nothing-begins-so") == []
    rows = [(b"a", b"1"), (b"ab", b"1"), (None, b"2"), (b"a", b"3"), (b"c", None), (b"a/b", b"4")]
    write_topic(tmp_path, [build_batch([SimpleRecord(1000, key, value) for key, value in rows])])
    assert [str(item.value) for item in paths_from((str(tmp_path),), "t/0/key/")] == [
        "t/0/key/a", "t/0/key/ab", "t/0/key/a%2Fb",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic of 400,000 records, some in the middle of which were removed by compaction."""
    path = tmp_path_factory.mktemp("long")
    batches = [
        build_batch(
            [
                SimpleRecord(1_700_000_000_000 + at, b"k%d" % at, b"")
                for at in range(base, base + 4000)
            ],
            BatchFields(base_offset=base),
        )
        for base in range(0, 400_000, 4000)
        if not 200_000 <= base < 300_000
    ]
    return write_topic(path, batches)


@pytest.mark.parametrize(
    ("path", "offered"),
    [
        ("offset/39999", ["39999", *map(str, range(399_990, 400_000))]),
        ("offset/3999", ["3999", *map(str, range(39_990, 40_000)),
                         *map(str, range(399_900, 400_000))]),
        ("offset/0", ["0"]),
        ("offset/007", []),
        ("offset/25", ["25", *map(str, range(250, 260)), *map(str, range(2500, 2600)),
                       *map(str, range(25_000, 25_389))]),
        ("offset/2500000", []),
        ("offset/9999999999999999999999", []),
        ("offset/fi", ["first"]),
        ("offset/²", []),
        ("key/k39999", ["k399990", "k399991", "k399992", "k399993", "k399994", "k399995",
                        "k399996", "k399997", "k399998", "k399999"]),
        ("key/k1", []),
    ],
)  # fmt: skip
def test_completing_reads_little_of_a_long_partition(
    long: Path, path: str, offered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0
    pread, preadv = os.pread, os.preadv

    def counted_pread(fd: int, size: int, position: int) -> bytes:
        nonlocal read
        data = pread(fd, size, position)
        read += len(data)
        return data

    def counted_preadv(fd: int, buffers: Any, position: int) -> int:
        nonlocal read
        count = preadv(fd, buffers, position)
        read += count
        return count

    monkeypatch.setattr(os, "pread", counted_pread)
    monkeypatch.setattr(os, "preadv", counted_preadv)
    monkeypatch.setattr("kafkafs.cli.support.path_completion._MAX_SECONDS", float("inf"))
    above = path.split("/", maxsplit=1)[0]
    found = [str(item.value) for item in paths_from((str(long),), f"t/0/{path}")]
    assert found == [f"t/0/{above}/{name}" for name in offered]
    size = (long / "t-0" / f"{0:020}.log").stat().st_size
    assert 0 < read < size / 4


def test_a_name_that_a_shell_would_obey_is_not_offered(tmp_path: Path, corpus: Corpus) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    for name in ("good-0", "$(reboot)-0", "a b-0"):
        (tmp_path / name).mkdir()
    assert values(f"kafkafs cat {tmp_path} ") == ["good/"]


def test_bash_is_given_what_follows_its_word_break(corpus: Corpus) -> None:
    line = f"kafkafs cat {corpus('kafka43-clean')} orders/0/offset/66"
    breaks = {"COMP_WORDBREAKS": " :="}
    assert ("plain", "orders/0/offset/66") in completed(line, "bash", **breaks)
    level = "kafkafs ls --isolation=read_u"
    assert completed(level, "bash", **breaks) == [("plain", "read_uncommitted")]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_what_their_shell_can_read(kafkafs: Kafkafs, shell: str) -> None:
    printed = stdout_of(kafkafs("completion", shell))
    program = shutil.which(shell)
    if program is not None:
        checked = subprocess.run(
            [program, "-n"], input=printed, capture_output=True, text=True, check=False
        )
        assert (checked.returncode, checked.stderr) == (0, "")


STARTS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(kafkafs completion bash)"'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -U compinit; compinit -u -D; eval "$(kafkafs completion zsh)"',
    ),
    "fish": (["fish", "--no-config", "-i"], "kafkafs completion fish | source"),
}
# bash, and every other of these shells that is installed.
SHELLS = [shell for shell in STARTS if shell == "bash" or shutil.which(shell)]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell_completes_down_to_a_record(
    shell: str, corpus: Corpus, programs: Path, environment: Mapping[str, str], tmp_path: Path
) -> None:
    command, setting_up = STARTS[shell]
    data = tmp_path / "data"
    data.symlink_to(corpus("kafka43-clean"))
    surroundings = {
        "PATH": f"{programs}:{environment['PATH']}",
        "HOME": str(tmp_path),
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        "PWD": os.fspath(tmp_path),
    }
    with Terminal(command, surroundings) as terminal:
        terminal.type(f"{setting_up}\ncd {tmp_path}\necho set''up\n")
        terminal.wait_for("setup")
        terminal.type("kafkafs ca\t")
        terminal.wait_for("kafkafs cat ")
        terminal.type("data ord\t")
        terminal.wait_for("orders/")
        terminal.type("0/off\t")
        terminal.wait_for("offset/")
        terminal.type("555\t\n")
        terminal.wait_for('"total":')
