"""Tests of `kafkafs ls`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from kafkafs.mount.nodes.partition import NAMES
from kafkafs.storage.format.records.encoder import BatchPlan, encode
from kafkafs.storage.format.records.record_columns import (
    Field,
    Headers,
    RecordColumns,
    SimpleRecord,
)
from tests import answers
from tests.building import build_batch
from tests.cli.results import Corpus, Kafkafs, Shell, lines_of, stderr_of
from tests.cli.terminal import Terminal
from tests.logs import write_log_dir, write_partition, write_topic


def test_topics(kafkafs: Kafkafs, clean: Path) -> None:
    topics = {topic for topic, _ in answers.partitions("kafka43-clean")}
    assert lines_of(kafkafs("ls", clean)) == sorted({*topics, "__cluster_metadata"})


def test_names_with_a_dot_in_front_are_hidden(kafkafs: Kafkafs, clean: Path) -> None:
    assert ".kafkafs" in lines_of(kafkafs("ls", "-a", clean))
    about = [
        "status.json",
        "config.properties",
        "metrics",
        "groups",
        "cluster",
        "report.html",
        "log",
    ]
    assert lines_of(kafkafs("ls", clean, ".kafkafs")) == about
    assert lines_of(kafkafs("ls", "-d", clean, ".kafkafs")) == [".kafkafs"]


def test_records_in_order(kafkafs: Kafkafs, clean: Path) -> None:
    expected = [str(record.offset) for record in answers.records("kafka43-clean", "compacted", 0)]
    assert lines_of(kafkafs("ls", clean, "compacted/0/offset")) == ["first", "last", *expected]


def test_isolation(kafkafs: Kafkafs, clean: Path) -> None:
    for level in (answers.READ_COMMITTED, answers.READ_UNCOMMITTED):
        expected = {
            str(record.offset) for record in answers.records("kafka43-clean", "txn", 0, level)
        }
        listed = lines_of(kafkafs("ls", "--isolation", level, clean, "txn/0/offset"))
        assert expected <= set(listed)
        assert ("12" in listed) == (level == answers.READ_UNCOMMITTED)


def test_files_and_directories(kafkafs: Kafkafs, clean: Path) -> None:
    """A file is listed by its own name, and each of several directories under a heading."""
    result = kafkafs("ls", clean, "orders/0/offset/600", "one/0/offset")
    assert lines_of(result) == [
        "orders/0/offset/600:", "orders/0/offset/600", "", "one/0/offset:", "first", "last", "0",
    ]  # fmt: skip
    assert lines_of(kafkafs("ls", "-d", clean, "orders", "one/0")) == ["orders", "one/0"]


@pytest.mark.parametrize("path", ["/orders/0/", "./orders//0", "orders/0/."])
def test_slashes_and_dots_that_mean_nothing(kafkafs: Kafkafs, clean: Path, path: str) -> None:
    assert "offset" in lines_of(kafkafs("ls", clean, path))


def test_long(kafkafs: Kafkafs, clean: Path) -> None:
    lines = lines_of(kafkafs("ls", "-l", clean, "orders/0/offset"))
    assert lines[0].split()[0] == "lrwxrwxrwx"
    assert lines[0].endswith("first -> 0")
    assert lines[602] == "-r--r--r--  110  2026-09-01T12:35:44.663Z  600"
    # Sizes are aligned within each block of a thousand names.
    assert len({line.index("2026") for line in lines[2:1000]}) == 1


def test_sizes_for_people(kafkafs: Kafkafs, clean: Path) -> None:
    lines = lines_of(kafkafs("ls", "-l", "-h", clean, "codec-none/0/segments"))
    assert any("  774K  " in line for line in lines)


def test_json(kafkafs: Kafkafs, clean: Path) -> None:
    lines = lines_of(kafkafs("ls", "--json", clean, "orders/0/offset", "orders/0/time"))
    found = [json.loads(line) for line in lines]
    assert found[0] == {
        "name": "first", "kind": "link", "mode": "0777", "size": 0, "mtime": 0, "target": "0",
    }  # fmt: skip
    assert found[602] == {
        "name": "600", "kind": "file", "mode": "0444", "size": 110, "mtime": 1788266144663,
    }  # fmt: skip
    assert found[-1]["target"] == "../offset/6673"


def test_several_log_directories(kafkafs: Kafkafs, corpus: Corpus) -> None:
    root = corpus("kafka43-two-dirs")
    both = lines_of(kafkafs("ls", f"{root}/dir1,{root}/dir2"))
    each = [set(lines_of(kafkafs("ls", root / name))) for name in ("dir1", "dir2")]
    assert set(both) == each[0] | each[1]


def test_brokers_that_contradict_each_other(kafkafs: Kafkafs, corpus: Corpus) -> None:
    """What needs the topic of which they have two lives fails; the rest is shown."""
    brokers = [f"{corpus('cluster43')}/{node}" for node in (1, 2)]
    both = ",".join(brokers)
    assert "reborn" in lines_of(kafkafs("ls", both))
    result = kafkafs("ls", both, "reborn", "only-on-2/0/offset/0")
    assert result.exit_code == 1
    assert result.stdout == "reborn:\n\nonly-on-2/0/offset/0:\nonly-on-2/0/offset/0\n"
    [line] = result.stderr.splitlines()
    assert line.startswith(f"kafkafs: reborn: {brokers[1]}/reborn-0: has topic id ")
    assert f", but {brokers[0]}/reborn-0 has " in line
    config = f"kafkafs.prefer.dir={brokers[1]}"
    assert len(lines_of(kafkafs("ls", "-c", config, both, "reborn/0/offset"))) == 52


def test_a_replica_that_diverges_is_reported(kafkafs: Kafkafs, corpus: Corpus) -> None:
    brokers = [f"{corpus('cluster43')}/{node}" for node in (1, 2, 3)]
    for command in (
        ("ls", ",".join(brokers), "split/0/offset"),
        ("topic", "list", ",".join(brokers)),
    ):
        result = kafkafs(*command)
        [line] = [line for line in result.stderr.splitlines() if "reborn" not in line]
        assert line.startswith(f"kafkafs: {brokers[1]}/split-0: diverges from {brokers[2]}/split-0")
    assert kafkafs("ls", ",".join(brokers), "split/0/offset").exit_code == 0
    assert kafkafs("ls", ",".join(brokers), "orders/0/offset").stderr == ""


def test_what_is_not_there_is_told_and_the_rest_is_listed(kafkafs: Kafkafs, clean: Path) -> None:
    result = kafkafs("ls", clean, "ordres", "one/0/offset", "orders/9", "orders/0/offset/9999")
    assert result.exit_code == 1
    assert "first\nlast\n0\n" in result.stdout
    assert result.stderr.splitlines() == [
        "kafkafs: ordres: no topic ordres; did you mean orders or unordered?",
        "kafkafs: orders/9: orders has no partition 9 (it has 0 to 2)",
        "kafkafs: orders/0/offset/9999: offset 9999 is past the end of orders/0 (0 to 6673)",
    ]


def test_damage_is_told(kafkafs: Kafkafs, corpus: Corpus) -> None:
    result = kafkafs("ls", corpus("kafka43-torn"), "crash-txn/0/offset")
    assert result.exit_code == 1
    assert "\n2871\n" in result.stdout
    assert "\n2875\n" not in result.stdout
    assert "2648.log: position 10401: batch 2873-2880: crc is" in result.stderr
    assert result.stderr.count("\n") == 1


def test_on_a_terminal_names_stand_in_columns(
    programs: Path, environment: Mapping[str, str], clean: Path
) -> None:
    surroundings = {**environment, "PATH": f"{programs}:{environment['PATH']}", "COLUMNS": "80"}
    with Terminal(["kafkafs", "ls", str(clean), "orders/0"], surroundings) as terminal:
        assert terminal.exit_code() == 0
        assert 1 < len(terminal.seen.splitlines()) < 4
    with Terminal(["kafkafs", "ls", "-1", str(clean), "orders/0"], surroundings) as terminal:
        assert terminal.exit_code() == 0
        assert len(terminal.seen.splitlines()) == len(NAMES)
    # More than a thousand names are not arranged in columns: one name per line.
    many = ["kafkafs", "ls", str(clean), "compacted-dirty/0/offset"]
    with Terminal(many, surroundings) as terminal:
        assert terminal.exit_code() == 0
        assert len(terminal.seen.splitlines()) == 5002


def test_a_hostile_name_is_escaped_on_a_terminal(
    programs: Path, environment: Mapping[str, str], tmp_path: Path
) -> None:
    write_log_dir(tmp_path, {})
    partition = tmp_path / "a-0"
    partition.mkdir()
    (partition / "\x1b]0;owned\x07").touch()
    command = ["kafkafs", "ls", str(tmp_path), "a/0/segments"]
    surroundings = {**environment, "PATH": f"{programs}:{environment['PATH']}"}
    with Terminal(command, surroundings) as terminal:
        assert terminal.exit_code() == 0
        assert terminal.seen == "\\x1b]0;owned\\x07\n"


def peak_memory(shell: Shell, command: str) -> int:
    """Returns the peak resident size of a process in KiB."""
    script = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = shell(f"python3 -c '{script}' {command}")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def empty_records(base: int, count: int) -> bytes:
    """Returns a batch of records without keys and values, encoded by a kernel: `build_batch` is
    Python, and takes seconds for so many."""
    timestamps = 1_700_000_000_000 + base + np.arange(count)
    columns = RecordColumns(timestamps, Field.nulls(), Field.nulls(), Headers.none())
    return bytes(encode(columns, BatchPlan(base_offset=base, batch_bytes=1 << 20)).data)


@pytest.fixture(scope="module")
def long_and_short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topics of 600,000 and of 400,000 records: enough to fill a scan's buffers."""
    path = tmp_path_factory.mktemp("listings")
    batches = [empty_records(base, 10_000) for base in range(0, 600_000, 10_000)]
    write_partition(path / "short-0", batches[:40])
    write_partition(path / "long-0", batches)
    write_log_dir(path, {("short", 0): 400_000, ("long", 0): 600_000})
    return path


@pytest.mark.slow
def test_a_long_listing_needs_no_more_memory_than_a_short_one(
    shell: Shell, long_and_short: Path
) -> None:
    for options in ("", "-l ", "--json "):
        short = peak_memory(shell, f"kafkafs ls {options}{long_and_short} short/0/offset")
        long = peak_memory(shell, f"kafkafs ls {options}{long_and_short} long/0/offset")
        assert long < short + 4 * 1024, options


def test_keys_with_a_value_are_listed_and_read(kafkafs: Kafkafs, tmp_path: Path) -> None:
    rows = [
        (b"a", b"1"),
        (b"b/c", b"2"),
        (b"", b"3"),
        (b"a", b"4"),
        (b"gone", b"5"),
        (b"gone", None),
    ]
    write_topic(tmp_path, [build_batch([SimpleRecord(1000, key, value) for key, value in rows])])
    assert lines_of(kafkafs("ls", str(tmp_path), "t/0/key")) == ["b%2Fc", "%", "a"]
    found = kafkafs("cat", str(tmp_path), "t/0/key/a", "t/0/key/b%2Fc", "t/0/key/%")
    assert (found.exit_code, found.stdout) == (0, "423")
    assert stderr_of(kafkafs("cat", str(tmp_path), "t/0/key/gone")).count("\n") == 1


@pytest.mark.parametrize(
    ("times", "shown"),
    [
        (["--since", "1788266144663"], range(600, 6674)),
        (["--until", "2026-09-01T12:35:44.663Z"], range(600)),
        (["--since", "2026-09-01T12:35:44.663Z", "--until", "2099-01-01"], range(600, 6674)),
    ],
)
def test_records_between_times(
    kafkafs: Kafkafs, clean: Path, times: list[str], shown: range
) -> None:
    assert lines_of(kafkafs("ls", *times, clean, "orders/0/offset")) == list(map(str, shown))


@pytest.mark.parametrize(
    ("times", "when"),
    [
        (["--since", "2099-01-01"], "from 2099-01-01T00:00:00.000Z on"),
        # A number means milliseconds, even if it looks like a year.
        (
            ["--since", "2026", "--until", "2027"],
            "from 1970-01-01T00:00:02.026Z on and before 1970-01-01T00:00:02.027Z",
        ),
    ],
)
def test_no_record_between_times(
    kafkafs: Kafkafs, clean: Path, times: list[str], when: str
) -> None:
    problem = stderr_of(kafkafs("ls", *times, clean, "orders/0/offset"), 0)
    assert problem == f"kafkafs: orders/0/offset: no record {when}\n"


def test_times_are_for_records(kafkafs: Kafkafs, clean: Path) -> None:
    for path in ("orders", "orders/0/key", "orders/0/values"):
        problem = stderr_of(kafkafs("ls", "--since", "5", clean, path))
        line = f"kafkafs: {path}: --since and --until apply only to TOPIC/"
        assert problem.startswith(line)


def test_sizes_of_what_has_to_be_made(kafkafs: Kafkafs, clean: Path) -> None:
    """Sizes are exact or absent, and never 0 for a file that is not empty."""
    for path in ("orders/0", "orders/0/dump", "orders/0/compacted", "orders", ".kafkafs"):
        listed = [json.loads(each) for each in lines_of(kafkafs("ls", "--json", clean, path))]
        for item in listed:
            # status.json contains the uptime, and metrics count this process's own work.
            if item["kind"] != "file" or item["name"] in ("status.json", "metrics"):
                continue
            whole = kafkafs("cat", clean, f"{path}/{item['name']}").stdout_bytes
            assert item["size"] in (len(whole), None), item
            if path in ("orders/0", "orders/0/dump"):
                assert item["size"] is not None
    (unknown,) = lines_of(kafkafs("ls", "-l", clean, "orders/0/compacted/values"))
    assert unknown.split()[1] == "-"
    assert "size   -" in kafkafs("stat", clean, "orders/0/follow").stdout
