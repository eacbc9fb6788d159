"""`kafkafs erase` on the command line: keys, reports, wrong usage, a full disk."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.erase import Erase, ErasedFile, erase
from tests.building import BatchFields, build_batch
from tests.cli.results import Kafkafs
from tests.erasing import KEY, TOPIC, make, records_of, snapshot, sums, traces
from tests.writing import NOW

ELSEWHERE = "kafkafs: copies may exist elsewhere: on replicas, in tiered storage, in backups and"


def test_the_report_has_the_sums_of_every_file(kafkafs: Kafkafs, tmp_path: Path) -> None:
    expected = make(tmp_path)
    before = sums(tmp_path)
    result = kafkafs("erase", "--json", "--key", KEY.decode(), tmp_path, TOPIC)
    assert result.exit_code == 0
    after = sums(tmp_path)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["file"] for row in rows] == sorted(row["file"] for row in rows)
    for row in rows:
        file = row["file"]
        assert row["sha256"] == {"before": before[file], "after": after[file]}
        assert row["bytes"]["after"] == os.path.getsize(file)
    assert records_of(tmp_path) == expected
    assert result.stderr.startswith(ELSEWHERE)
    again = kafkafs("erase", "--key", KEY.decode(), tmp_path, TOPIC)
    why = f"kafkafs: {TOPIC}: no record with key person-7 is on the disk\n"
    assert (again.exit_code, again.output) == (1, why)
    assert kafkafs("verify", tmp_path).exit_code == 0
    assert kafkafs("history", tmp_path, TOPIC, KEY.decode()).exit_code == 1


def test_a_file_lists_keys_one_per_line(kafkafs: Kafkafs, tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "keys"
    data.mkdir()
    make(data)
    before = records_of(data)
    file.write_bytes(b"nobody\n\nperson-6\n" + KEY)
    result = kafkafs("erase", "--key-file", file, "--key", "person-4", data, f"{TOPIC}/0")
    assert result.exit_code == 0
    gone = (b"person-4", b"person-6", KEY)
    assert records_of(data) == [each for each in before if each.key not in gone]
    again = kafkafs("erase", "--key-file", file, data, TOPIC)
    assert (again.exit_code, again.stderr) == (
        1,
        f"kafkafs: {TOPIC}: no record with one of the 3 keys is on the disk\n",
    )


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("hex", "00ff0a"), ("hex", "00 FF 0A"), ("base64", "AP8K")],
)
def test_keys_of_any_bytes(kafkafs: Kafkafs, tmp_path: Path, encoding: str, text: str) -> None:
    data, file = tmp_path / "data", tmp_path / "keys"
    kept = SimpleRecord(NOW, b"\0\xff", b"kept")
    with LogManager(str(data), clock=SetClock(NOW)) as manager:
        manager.create_topic(TOPIC, 1)
        for key in (b"\0\xff\n", b"\0\xff\nmore"):
            records = [SimpleRecord(NOW, key, b"gone"), kept]
            manager.writer(TOPIC, 0).append(build_batch(records, BatchFields(leader_epoch=-1)))
    file.write_text(text)
    result = kafkafs("erase", "--key-encoding", encoding, "--key-file", file, data, TOPIC)
    assert result.exit_code == 0, result.output
    assert [each.value for each in records_of(data)] == [b"kept", b"gone", b"kept"]
    prefix = ("--key-encoding", encoding, "--key-prefix", text)
    assert kafkafs("erase", *prefix, data, TOPIC).exit_code == 0
    assert [each.key for each in records_of(data)] == [kept.key] * 2


def test_a_table_names_files_and_sizes(kafkafs: Kafkafs, tmp_path: Path) -> None:
    make(tmp_path)
    last = records_of(tmp_path)[-1].offset
    before = snapshot(tmp_path)
    arguments = ("--offset", last, tmp_path, f"{TOPIC}/0")
    dry = kafkafs("erase", "--dry-run", *arguments)
    assert snapshot(tmp_path) == before
    head, row = dry.stdout.splitlines()
    assert head.split() == ["FILE", "RECORDS", "BYTES", "AFTER", "DONE"]
    file = max((tmp_path / f"{TOPIC}-0").glob("*.log"))
    size = str(file.stat().st_size)
    assert row.split() == [str(file), "1", size, "-", "to", "be", "rewritten"]
    done = kafkafs("erase", *arguments).stdout.splitlines()[1].split()
    assert done == [str(file), "1", size, str(file.stat().st_size), "rewritten"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "needs exactly one of a key, a prefix and an offset"),
        (("--key", "a", "--offset", "1"), "needs exactly one of a key, a prefix and an offset"),
        (("--key-prefix", ""), "the prefix must not be empty"),
        (("--offset", "1"), "an offset needs exactly one TOPIC/PARTITION"),
        (("--key-file", "/dev/null"), "/dev/null has no key"),
        (("--key-encoding", "hex", "--key", "0g"), "0g is not hex"),
        (("--key-encoding", "base64", "--key-prefix", "é"), "é is not base64"),
    ],
)
def test_wrong_usage_is_one_line(
    kafkafs: Kafkafs, tmp_path: Path, arguments: tuple[str, ...], why: str
) -> None:
    result = kafkafs("erase", *arguments, tmp_path, TOPIC)
    assert result.exit_code == 2
    assert result.output == f"kafkafs erase: {why}; see `kafkafs erase --help`\n"


# -- a full disk ----------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """An empty disk of 1 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_a_full_disk_leaves_all_as_it_was(kafkafs: Kafkafs, disk: Path) -> None:
    data = disk / "data"
    data.mkdir()
    expected = make(data)
    before = {name: each for name, each in snapshot(data).items() if TOPIC in name}
    with (disk / "filling").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    assert shutil.disk_usage(disk).free == 0
    result = kafkafs("erase", "--key", KEY.decode(), data, TOPIC)
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr
    after = {name: each for name, each in snapshot(data).items() if TOPIC in name}
    assert {name: hashlib.sha256(each).hexdigest() for name, each in after.items()} == {
        name: hashlib.sha256(each).hexdigest() for name, each in before.items()
    }
    (disk / "filling").unlink()
    assert kafkafs("erase", "--key", KEY.decode(), data, TOPIC).exit_code == 0
    assert records_of(data) == expected
    assert traces(data) == []


def test_space_for_the_largest_segment_is_enough(disk: Path) -> None:
    """The old file of each segment is really gone before the next one is written."""
    data = disk / "data"
    with LogManager(str(data), clock=SetClock(NOW)) as manager:
        manager.create_topic(TOPIC, 1, {"internal.segment.bytes": "150000"})
        for number in range(10):
            record = SimpleRecord(NOW, KEY if number % 2 else b"other", bytes(60_000))
            manager.writer(TOPIC, 0).append(build_batch([record], BatchFields(leader_epoch=-1)))
    free = shutil.disk_usage(disk).free
    assert free > 200_000
    (disk / "filling").write_bytes(bytes(free - 140_000))
    with LogManager(str(data), clock=SetClock(NOW)) as manager:
        rows = list(erase(manager, Erase(Selection.of(TOPIC), keys=frozenset([KEY]))))
    assert [type(row) for row in rows] == [ErasedFile] * 5
    assert [each.key for each in records_of(data)] == [b"other"] * 5
