"""Tests of `kafkafs append`."""

from __future__ import annotations

import io
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkafs.cli.main import cli
from kafkafs.cli.verbs.append import whole_lines
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.cli.results import Corpus, Kafkafs, Shell, stderr_of, stdout_of
from tests.cli.terminal import Terminal
from tests.reading import UNCOMMITTED, Plain, read
from tests.waiting import PATIENCE_SECONDS, wait_until


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with the topics orders (2 partitions) and keyed (compacted)."""
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("orders", 2)
        engine.create_topic("keyed", configs={"cleanup.policy": "compact"})
    return tmp_path / "data"


@pytest.fixture
def append(data: Path) -> Callable[..., Result]:
    """`append(input, "orders/0", options…)` runs the verb with `input` as stdin."""

    def run(text: bytes | str, partition: str, *options: str) -> Result:
        words = ["append", str(data), partition, *options]
        return CliRunner().invoke(cli, words, input=text)

    return run


Append = Callable[..., Result]


def records(data: Path, topic: str = "orders", partition: int = 0) -> list[Plain]:
    return read(Engine(str(data)).log(topic, partition).view())


def test_lines_are_values_and_get_the_present_time(data: Path, append: Append) -> None:
    before = time.time_ns() // 1_000_000
    text = stdout_of(append(b"a\n\n\xff\0\nlast", "orders/0"))
    assert text == "orders/0: 4 records, offsets 0 to 3\n"
    found = records(data)
    assert [(record.key, record.value) for record in found] == [
        (None, b"a"), (None, b""), (None, b"\xff\0"), (None, b"last"),
    ]  # fmt: skip
    assert all(before <= record.timestamp <= time.time_ns() // 1_000_000 for record in found)
    assert append(b"one more", "orders/0").stdout == "orders/0: 1 records, offsets 4\n"
    assert (data / ".kafka_cleanshutdown").exists()


def test_nothing_is_nothing(data: Path, append: Append) -> None:
    assert (append(b"", "orders/0").exit_code, append(b"", "orders/0").stdout) == (0, "")
    assert json.loads(append(b"", "orders/0", "--json").stdout) == {
        "topic": "orders", "partition": 0, "records": 0, "firstOffset": None, "lastOffset": None,
    }  # fmt: skip
    assert records(data) == []


def test_keys(data: Path, append: Append) -> None:
    assert append("a::1\nb::x::y\n::\n", "orders/0", "--key-separator", "::").exit_code == 0
    assert [(record.key, record.value) for record in records(data)] == [
        (b"a", b"1"), (b"b", b"x::y"), (b"", b""),
    ]  # fmt: skip


def test_what_cat_prints_is_appended_again(shell: Shell, data: Path, corpus: Corpus) -> None:
    source = corpus("kafka43-clean")
    done = shell(
        f"kafkafs cat {source} codec-gzip/0/records.jsonl"
        f" | kafkafs append {data} orders/0 --format jsonl --compression zstd"
        " -c message.timestamp.after.max.ms=9223372036854775807"
    )
    assert (done.returncode, done.stderr) == (0, "")
    original = read(Engine(str(source)).log("codec-gzip", 0).view())
    copied = records(data)
    assert [(r.timestamp, r.key, r.value, r.headers) for r in copied] == [
        (r.timestamp, r.key, r.value, r.headers) for r in original
    ]


def test_a_file(data: Path, kafkafs: Kafkafs, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("a\nb\n")
    result = kafkafs("append", data, "orders/1", tmp_path / "lines", "--json")
    assert json.loads(result.stdout) == {
        "topic": "orders", "partition": 1, "records": 2, "firstOffset": 0, "lastOffset": 1,
    }  # fmt: skip


def test_a_bad_line_names_its_number_and_those_before_it_are_kept(
    data: Path, append: Append
) -> None:
    lines = [json.dumps({"value": str(number)}) for number in range(5)]
    lines[3] = '{"vale": "x"}'
    result = append("\n".join(lines), "orders/0", "--format", "jsonl")
    assert result.exit_code == 1
    assert result.stdout == "orders/0: 3 records, offsets 0 to 2\n"
    assert result.stderr == 'kafkafs: <stdin>: line 4: "vale" is not a field of a record\n'
    assert [record.value for record in records(data)] == [b"0", b"1", b"2"]


def test_what_the_topic_refuses_names_its_line_too(data: Path, append: Append) -> None:
    text = '{"key":"a","value":"1"}\n{"value":"2"}\n{"key":"c","value":"3"}\n'
    result = append(text, "keyed/0", "--format", "jsonl")
    assert (result.exit_code, result.stdout) == (1, "keyed/0: 1 records, offsets 0\n")
    assert result.stderr.startswith("kafkafs: <stdin>: line 2: ")
    result = append(b"a\nb\n" + b"x" * 2_000_000 + b"\nc\n", "orders/0")
    assert (result.exit_code, result.stdout) == (1, "orders/0: 2 records, offsets 0 to 1\n")
    assert "line 3: " in result.stderr
    assert "max.message.bytes is 1048588" in result.stderr


def test_a_transaction_is_all_or_nothing(data: Path, append: Append) -> None:
    options = ("--transaction", "--key-separator", "=")
    assert "line 2: no '='" in stderr_of(append("a=1\nb\n", "orders/0", *options))
    assert records(data) == []
    assert append("a=1\nb=2\n", "orders/0", *options).exit_code == 0
    assert [record.value for record in records(data)] == [b"1", b"2"]
    log = Engine(str(data)).log("orders", 0).view()
    assert [record.value for record in read(log, isolation=UNCOMMITTED)][-2:] == [b"1", b"2"]
    assert log.last_stable_offset == log.end_offset


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression(data: Path, append: Append, kafkafs: Kafkafs, codec: str) -> None:
    append("a\nb\n" * 50, "orders/0", "--compression", codec)
    record = json.loads(kafkafs("cat", data, "orders/0/offset/7.json").stdout)
    assert (record["value"], record["codec"]) == ("b", codec)


def test_batches_have_their_size(data: Path, append: Append, kafkafs: Kafkafs) -> None:
    append("x" * 50 + "\n" + ("y" * 50 + "\n") * 99, "orders/0", "--batch-size", "1000")
    record = json.loads(kafkafs("cat", data, "orders/0/offset/50.json").stdout)
    assert 500 < record["batch"]["size"] <= 1000


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["nothing/0"], 1, "no topic nothing"),
        (["orders/7"], 1, "orders has no partition 7"),
        (["orders"], 2, "'orders' is not TOPIC/PARTITION"),
        (["orders/x"], 2, "'orders/x' is not TOPIC/PARTITION"),
        (["orders/0", "/nowhere"], 2, "No such file or directory"),
        (["orders/0", "--format", "jsonl", "--key-separator", ":"], 2, "--key-separator requires"),
        (["orders/0", "--key-separator", ""], 2, "--key-separator must be"),
        (["orders/0", "-c", "retention.ms=soon"], 2, "retention.ms: must be"),
    ],
)
def test_wrong_usage(append: Append, words: list[str], code: int, line: str) -> None:
    problem = stderr_of(append("x\n", *words), code)
    assert line in problem
    assert problem.count("\n") == 1


def test_a_held_directory_is_refused_with_the_holder(data: Path, warm_shell: Shell) -> None:
    with LogManager(str(data)):
        done = warm_shell(f"echo x | kafkafs append {data} orders/0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"kafkafs: {data}: process {os.getpid()} has it locked, a broker or another engine; "
        "stop that process, or open the directory read-only\n"
    )


def test_lines_come_when_they_come_and_not_only_at_the_end(
    data: Path, programs: Path, environment: Mapping[str, str]
) -> None:
    """A reader that follows the log sees each line long before the pipe ends."""
    with subprocess.Popen(
        [programs / "kafkafs", "append", data, "orders/0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(environment),
    ) as process:
        assert process.stdin is not None
        engine = Engine(str(data))
        for number in range(3):
            process.stdin.write(b"%d\n" % number)
            process.stdin.flush()
            wait_until(lambda: engine.log("orders", 0).view().end_offset > number)  # noqa: B023
        process.stdin.close()
        assert process.wait(PATIENCE_SECONDS) == 0


class Pieces(io.BytesIO):
    """A file whose reads return these pieces."""

    name = "pieces"

    def __init__(self, *pieces: bytes) -> None:
        super().__init__()
        self._pieces = list(pieces)

    def read1(self, size: int | None = -1, /) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


@pytest.mark.parametrize(
    "pieces",
    [
        (b"",),
        (b"a\nb\n",),
        (b"a", b"\nb", b"\n"),
        (b"a\nb",),
        (b"a\n" * 400_000, b"tail", b"\nx" * 700_000),
        (b"x" * 3_000_000, b"\n", b"y"),
    ],
)
def test_parts_are_whole_lines(pieces: tuple[bytes, ...]) -> None:
    parts = list(whole_lines(Pieces(*pieces), 0))
    assert b"".join(parts) == b"".join(pieces)
    assert all(part.endswith(b"\n") for part in parts[:-1])


def test_a_large_file_shows_a_bar_on_a_terminal(
    data: Path, programs: Path, environment: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "large").write_bytes(b"x" * 99 + b"\n")
    (tmp_path / "large").write_bytes((b"x" * 99 + b"\n") * 300_000)
    surroundings = {**environment, "TERM": "xterm", "PATH": f"{programs}:{environment['PATH']}"}
    command = ["kafkafs", "append", str(data), "orders/0", str(tmp_path / "large")]
    with Terminal(command, surroundings) as terminal:
        assert terminal.exit_code() == 0
        assert "appending to orders/0" in terminal.seen
        assert "300000 records, offsets 0 to 299999" in terminal.seen
