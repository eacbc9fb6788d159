"""`kafkafs export` and `kafkafs import`: what they print, their exit codes, and what they leave."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafkafs as package
from tests import answers, registry_records
from tests.cli.results import Corpus, Kafkafs, lines_of, rows_of, stderr_of, stdout_of
from tests.cli.terminal import Terminal
from tests.conftest import differences, fingerprint
from tests.crash.exporting import contents, exported


@pytest.fixture
def source(tmp_path: Path) -> Path:
    with package.open(tmp_path / "source", writable=True) as directory:
        directory.create_topic("t", 2)
        directory["t", 0].append([b"one", b"two"])
    return tmp_path / "source"


def test_there_and_back(kafkafs: Kafkafs, source: Path, tmp_path: Path) -> None:
    output, target = tmp_path / "out", tmp_path / "in"
    lines = lines_of(kafkafs("export", source, "-o", output))
    assert lines[0].split() == [
        *("topic", "partition", "startOffset", "endOffset", "records", "files", "bytes"),
    ]
    assert lines[1].split()[:6] == ["t", "0", "0", "2", "2", "1"]
    assert lines[2:] == ["export: 2 records"]
    again = lines_of(kafkafs("export", source, "-o", output))
    assert again[-1] == "export: 2 records, 1 of 1 parts were already finished"
    lines = lines_of(kafkafs("import", "--from", output, target))
    assert [line.split()[:3] for line in lines[1:3]] == [["t", "0", "2"], ["t", "1", "0"]]
    assert lines[3] == "import: 2 records"
    assert contents(target) == contents(source)
    again = lines_of(kafkafs("import", "--from", output, target))
    assert again[-1] == "import: 2 records, 1 of 1 parts were already finished"


def test_json(kafkafs: Kafkafs, source: Path, tmp_path: Path) -> None:
    (row,) = rows_of(kafkafs("export", "--json", source, "-o", tmp_path / "out"))
    size = row.pop("bytes")
    assert size > 100
    assert row == {
        "topic": "t",
        "partition": 0,
        "startOffset": 0,
        "endOffset": 2,
        "records": 2,
        "files": 1,
    }
    rows = rows_of(kafkafs("import", "--json", "--from", tmp_path / "out", tmp_path / "in"))
    assert [(each["partition"], each["records"], each["endOffset"]) for each in rows] == [
        (0, 2, 2),
        (1, 0, 0),
    ]


def test_damage_is_told_with_code_1(kafkafs: Kafkafs, corpus: Corpus, tmp_path: Path) -> None:
    words = ("export", corpus("kafka43-torn"), "-o", tmp_path / "out", "crash-txn/0")
    result = kafkafs(*words)
    assert result.exit_code == 1
    assert ".log: position 10401: " in result.stderr
    assert "are not exported\n" in result.stderr
    result = kafkafs(*words, "--json")
    (_, wrong) = map(json.loads, result.stdout.splitlines())
    assert (result.exit_code, result.stderr, wrong["position"]) == (1, "", 10401)
    assert "are not exported" in wrong["what"]
    result = kafkafs(*words, "--permissive")
    assert result.exit_code == 1
    assert "export: " in result.stdout


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--until", "5", "--from", "5"], "--until must be later than --from"),
        (["--from", "yesterday"], "'yesterday' is not a time"),
        (["--format", "xml"], "'xml' is not one of 'parquet', 'arrow', 'jsonl', 'csv'"),
        (["--by", "minute"], "'minute' is not one of 'date', 'hour'"),
        (["-o", "s3://bucket/x"], "a URL, which can only be read"),
    ],
)
def test_wrong_usage(
    kafkafs: Kafkafs, source: Path, tmp_path: Path, words: list[str], line: str
) -> None:
    given = words if "-o" in words else [*words, "-o", str(tmp_path / "out")]
    assert line in stderr_of(kafkafs("export", source, *given), 2)
    assert not (tmp_path / "out").exists()


def test_what_is_refused_is_one_line(kafkafs: Kafkafs, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    stdout_of(kafkafs("export", source, "-o", output))
    problem = stderr_of(kafkafs("export", "--format", "csv", source, "-o", output))
    assert "notes of a job with different format; remove it to start over" in problem
    assert problem.count("\n") == 1
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").write_text("mine")
    problem = stderr_of(kafkafs("export", source, "-o", tmp_path / "full"))
    assert "has files, but no export; choose a new or an empty directory" in problem
    problem = stderr_of(kafkafs("export", source, "-o", source / "x"))
    assert "would be in the log directory" in problem
    problem = stderr_of(kafkafs("import", "--from", tmp_path / "nothing", tmp_path / "in"))
    assert "nothing: no such file or directory" in problem
    assert not (tmp_path / "in").exists()
    problem = stderr_of(kafkafs("export", source, "-o", tmp_path / "new", "tt"))
    assert "no topic tt; did you mean t?" in problem
    assert not (tmp_path / "new").exists()


def test_the_sources_stay_as_they_are(kafkafs: Kafkafs, corpus: Corpus, tmp_path: Path) -> None:
    source = corpus("kafka43-clean")
    before = fingerprint(source)
    for format in ("parquet", "csv"):
        stdout_of(kafkafs("export", "--format", format, source, "-o", tmp_path / format))
    assert differences(before, fingerprint(source)) == []
    assert exported(tmp_path / "csv") == exported(tmp_path / "parquet")


def test_as_of_a_time(kafkafs: Kafkafs, corpus: Corpus, tmp_path: Path) -> None:
    source, then = corpus("kafka43-clean"), "2026-09-03"
    stdout_of(kafkafs("export", "--at", then, source, "-o", tmp_path / "out", "orders"))
    with package.open(source, at=then) as past:
        ends = {("orders", number): past["orders", number].end_offset for number in range(3)}
    assert {key: len(found) for key, found in exported(tmp_path / "out").items()} == ends
    problem = stderr_of(kafkafs("export", source, "-o", tmp_path / "out", "orders"))
    assert "different at" in problem


def test_other_parquet_files(kafkafs: Kafkafs, source: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"key": ["k"] * 3, "value": ["a", "b", "c"]}), path)
    lines = lines_of(kafkafs("import", "--from", path, source, "t/1"))
    assert lines[1].split()[:3] == ["t", "1", "3"]
    again = lines_of(kafkafs("import", "--from", path, source, "t/1"))
    assert again == ["import: 0 records, 1 of 1 parts were already finished"]
    assert len(contents(source)["t", 1]) == 3
    problem = stderr_of(kafkafs("import", "--from", path, source), 2)
    assert "name the one topic, or partition, that the records are appended to" in problem


def test_a_locked_target(kafkafs: Kafkafs, source: Path, tmp_path: Path) -> None:
    stdout_of(kafkafs("export", source, "-o", tmp_path / "out"))
    with package.open(tmp_path / "in", writable=True) as held:
        held.create_topic("other")
        problem = stderr_of(kafkafs("import", "--from", tmp_path / "out", tmp_path / "in"))
    assert "has it open for writing already" in problem


def test_a_bar_on_a_terminal(source: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    words = [sys.executable, "-m", "kafkafs", "export", str(source), "-o", str(tmp_path / "out")]
    with Terminal(words, environment) as terminal:
        shown = terminal.wait_for("export: 2 records")
        assert terminal.exit_code() == 0
    assert "exporting [" in shown or "exporting ..." in shown


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.parametrize("format", ["parquet", "arrow", "jsonl", "csv"])
def test_a_full_disk(kafkafs: Kafkafs, tmp_path: Path, small_disk: Path, format: str) -> None:
    """What has no room is missing, with code 1; nothing incomplete stays, and with room the same
    command finishes."""
    source, output = tmp_path / "source", small_disk / "out"
    with package.open(source, writable=True) as directory:
        directory.create_topic("t", 3)
        for number in range(3):
            directory["t", number].append([os.urandom(1000) for _ in range(450)])
    filling = small_disk / "filling"
    filling.write_bytes(bytes(1 << 18))
    result = kafkafs("export", "--format", format, source, "-o", output)
    assert result.exit_code == 1
    assert result.stderr.count("No space left on device; offsets 0 to 449 are not exported") > 0
    assert "Traceback" not in result.stderr
    assert not list(output.rglob("*.tmp"))
    assert all(len(found) == 450 for found in exported(output).values())
    assert not (output / "_SUCCESS").exists()
    filling.unlink()
    subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)
    stdout_of(kafkafs("export", "--format", format, source, "-o", output))
    found = exported(output)
    assert {key: len(offsets) for key, offsets in found.items()} == {
        ("t", number): 450 for number in range(3)
    }


def test_the_process_is_killed(tmp_path: Path, environment: dict[str, str]) -> None:
    """Everything is there once after it has been repeated often enough."""
    source, output = tmp_path / "source", tmp_path / "out"
    with package.open(source, writable=True) as directory:
        directory.create_topic("t", 6)
        for number in range(6):
            directory["t", number].append([b"%d" % at * 20 for at in range(20_000)])
    words = [sys.executable, "-m", "kafkafs", "export", "--by", "hour", str(source), "-o"]
    for _ in range(5):
        process = subprocess.Popen([*words, str(output)], env=environment)
        deadline = time.monotonic() + 60
        before = len(list(output.glob("_kafkafs/*")))
        while len(list(output.glob("_kafkafs/*"))) <= before and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        process.kill()
        process.wait()
        found = exported(output)
        assert all(len(set(offsets)) == len(offsets) for offsets in found.values())
    subprocess.run([*words, str(output)], env=environment, check=True, stdout=subprocess.DEVNULL)
    found = exported(output)
    assert {key: len(offsets) for key, offsets in found.items()} == {
        ("t", number): 20_000 for number in range(6)
    }


class TestDecoded:
    """`--decode`: keys and values as their schemas say."""

    @pytest.fixture
    def log_dir(self, tmp_path: Path) -> Path:
        with package.open(tmp_path / "source", writable=True) as directory:
            directory.create_topic("_schemas")
            directory.create_topic("t")
            self.register(directory, 1, 7, "long")
            directory["t", 0].append([b"\0\0\0\0\x07\x02", package.ProducerRecord(None), b"raw"])
        return tmp_path / "source"

    def register(
        self, directory: package.WritableLogDirectories, version: int, number: int, text: Any
    ) -> None:
        record = registry_records.schema("t-value", version, number, json.dumps(text))
        directory["_schemas", 0].append([package.ProducerRecord(record.value, key=record.key)])

    def test_typed_columns(self, kafkafs: Kafkafs, log_dir: Path, tmp_path: Path) -> None:
        stdout_of(kafkafs("export", log_dir, "--decode", "-o", tmp_path / "out", "t"))
        [file] = (tmp_path / "out").glob("topic=t/*/*.parquet")
        table = pq.read_table(file, partitioning=None)
        assert table.schema.field("decoded").type == pa.int64()
        assert table.select(["value", "decoded", "decodeError"]).to_pylist() == [
            {"value": None, "decoded": 1, "decodeError": None},
            {"value": None, "decoded": None, "decodeError": None},
            {"value": b"raw", "decoded": None, "decodeError": "its bytes name no schema"},
        ]

    def test_lines_are_those_of_a_mount(
        self, kafkafs: Kafkafs, corpus: Corpus, tmp_path: Path
    ) -> None:
        output = tmp_path / "out"
        stdout_of(
            kafkafs("export", corpus("schemas43"), "--decode", "--format", "jsonl", "-o", output)
        )
        found = {
            (row["topic"], row["partition"], row["offset"]): row
            for file in output.glob("topic=s-*/*/*.jsonl")
            for row in map(json.loads, file.read_text().splitlines())
        }
        lines = (answers.directory("schemas43") / "decoded.jsonl").read_text().splitlines()
        expected = [row for row in map(json.loads, lines) if "error" not in row["value"]]
        assert len(expected) > 350
        for row in expected:
            line = found[row["topic"], row["partition"], row["offset"]]
            if row["value"]["kind"] not in ("text", "binary"):
                assert line["value"] == row["value"]["value"]

    def test_csv(self, kafkafs: Kafkafs, log_dir: Path, tmp_path: Path) -> None:
        output = tmp_path / "out"
        stdout_of(kafkafs("export", log_dir, "--decode", "--format", "csv", "-o", output, "t"))
        [file] = output.glob("topic=t/*/*.csv")
        with file.open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        assert [(row["value"], row["decoded"], row["decodeError"]) for row in rows] == [
            ("", "1", ""),
            ("", "", ""),
            ("raw", "", ""),
        ]

    def test_the_columns_stay_when_a_version_is_added(
        self, kafkafs: Kafkafs, log_dir: Path, tmp_path: Path
    ) -> None:
        output = tmp_path / "out"
        stdout_of(kafkafs("export", log_dir, "--decode", "-o", output, "t"))
        with package.open(log_dir, writable=True) as directory:
            self.register(directory, 2, 8, "double")
            directory["t", 0].append([b"\0\0\0\0\x07\x04", b"\0\0\0\0\x08" + bytes(8)])
        stdout_of(kafkafs("export", log_dir, "--decode", "-o", output, "t"))
        tables = [
            pq.read_table(file, partitioning=None) for file in sorted(output.glob("topic=t/*/*"))
        ]
        table = pa.concat_tables(tables)
        assert table["decoded"].to_pylist() == [1, None, None, 2, None]
        assert table["decodeError"][4].as_py() == "double does not fit long"
        other = kafkafs("export", log_dir, "-o", output, "t")
        assert "it has the notes of a job with different decode" in stderr_of(other)

    def test_it_cannot_be_imported(self, kafkafs: Kafkafs, log_dir: Path, tmp_path: Path) -> None:
        stdout_of(kafkafs("export", log_dir, "--decode", "-o", tmp_path / "out", "t"))
        refused = kafkafs("import", "--from", tmp_path / "out", tmp_path / "in")
        why = "its records are decoded, so that the original bytes are missing"
        assert f"{why}; import an export without --decode" in stderr_of(refused)

    def test_a_schema_that_cannot_be_used(
        self, kafkafs: Kafkafs, log_dir: Path, tmp_path: Path
    ) -> None:
        with package.open(log_dir, writable=True) as directory:
            self.register(directory, 2, 8, {"type": "record"})
        done = kafkafs("export", log_dir, "--decode", "-o", tmp_path / "out", "t")
        assert done.exit_code == 1
        assert "t-0: schema 8 (t-value version 2): a record has no name" in done.stderr
        assert "the partition is not exported" in done.stderr

    def test_columns_that_parquet_does_not_have(
        self, kafkafs: Kafkafs, log_dir: Path, tmp_path: Path
    ) -> None:
        with package.open(log_dir, writable=True) as directory:
            self.register(directory, 2, 8, {"type": "record", "name": "R", "fields": []})
        done = kafkafs("export", log_dir, "--decode", "-o", tmp_path / "out", "t")
        assert done.exit_code == 1
        assert "Parquet cannot have its columns" in done.stderr
        other = ("--decode", "--format", "arrow", "-o", tmp_path / "arrow")
        stdout_of(kafkafs("export", log_dir, *other, "t"))
