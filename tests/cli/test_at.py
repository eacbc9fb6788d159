"""Tests of `--at`: every verb answers as it did at that time."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.transactions.producer import TransactionalProducer, abort_transaction
from tests.cli.results import Corpus, Kafkafs, lines_of, stderr_of

NOON = 1_700_000_000_000
HOUR_MS = 3_600_000
#: When topics of groups43 had still to be deleted, created again and extended.
BEFORE_CHANGES = 1795474214201


def work(path: Path, first: int, last: int) -> None:
    """Appends records of some hours around noon to `t`. A transaction begins at noon,
    and is aborted an hour later."""
    clock = SetClock(NOON + first * HOUR_MS)
    with LogManager(str(path), clock=clock) as engine:
        if not engine.topics():
            configs = {"cleanup.policy": "compact,delete", "segment.ms": "1000"}
            engine.create_topic("t", configs=configs)
        for hour in range(first, last):
            values = [b"%d" % hour, b"again", b"once"]
            keys = [b"k", b"k", b"%d" % hour]
            records = RecordColumns.from_values(values, keys=keys, timestamp=clock.now_ms())
            engine.writer("t", 0).append_records(records)
            if hour == 0:
                producer = TransactionalProducer(engine)
                producer.begin()
                producer.append("t", 0, records)
            if hour == 1:
                for each in engine.writer("t", 0).producers.open_transactions():
                    abort_transaction(engine.writer("t", 0), each.producer_id)
            clock.advance(HOUR_MS)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Returns a log directory, and a copy of it from noon; for tests that only read."""
    now = tmp_path_factory.mktemp("now")
    noon = now.with_name("noon")
    work(now / "data", -3, 1)
    shutil.copytree(now, noon)
    work(now / "data", 1, 4)
    return now / "data", noon / "data"


@pytest.mark.parametrize(
    "words",
    [
        "ls DIR t/0/offset",
        "ls --json DIR t/0/offset",
        "cat DIR t/0/records.jsonl",
        "cat --isolation read_uncommitted DIR t/0/records.jsonl t/0/follow",
        "cat DIR t/0/key/k",
        "cat DIR t/0/compacted/records.jsonl t/0/compacted/summary.json t/0/why.json",
        "stat DIR t/0/offset/2 t/0/time/2023-11-14T20:00",
        "explain DIR t/0/offset/last",
        f"explain DIR t/0/time/{NOON + 1}",
        "why --json DIR t/0",
        "topic list --json DIR",
        "topic config DIR t",
        "transactions --json DIR",
        "history --json DIR t k",
        "report --deep DIR -o -",
        f"expire -n --all --json -c retention.ms={HOUR_MS} DIR",
        "compact -n --all --json DIR",
        "compact -n --keys DIR t/0",
    ],
)
def test_each_verb_answers_as_it_did(kafkafs: Kafkafs, both: tuple[Path, Path], words: str) -> None:
    def answer(directory: Path) -> tuple[int, str]:
        verbs = words.replace("DIR", str(directory)).split()
        result = kafkafs(*verbs, "--at", NOON)
        output = result.stdout + result.stderr
        return result.exit_code, output.replace(str(directory), "DIR")

    now, noon = both
    assert answer(now) == answer(noon)
    code, output = answer(now)
    assert output
    assert code == ("explain" in words and "time" in words)


def test_copies_differ_in_what_was_appended_since(
    kafkafs: Kafkafs, both: tuple[Path, Path]
) -> None:
    now, noon = both
    assert lines_of(kafkafs("diff", "--at", NOON, now, noon)) == []
    later = kafkafs("diff", now, noon)
    assert (later.exit_code, "past the log end offset in" in later.stdout) == (1, True)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("mount --rw --at 2023-11-14 DIR OUT", "a mount as of a time is read-only"),
        ("mount --rw --maintain -o at=2023-11-14 DIR OUT", "a mount as of a time is read-only"),
        ("mount -o at=soon DIR OUT", "'soon' is not a time"),
        ("transactions --abort 1 --at 2023-11-14 DIR", "it cannot be used with --abort"),
        ("topic config --delete-config retention.ms --at 2023-11-14 DIR t", "with changes"),
        ("verify --at 2023-11-14 DIR", "--at cannot be used: verify checks files as they are on"),
        ("spark verify --at 2023-11-14 DIR", "verify checks files as they are on the disk now"),
        ("dump DIR/t-0/0.log --at 2023-11-14", "now; `kafkafs cat --at TIME LOG_DIRS TOPIC/PART"),
        ("cat --at soon DIR t/0/values", "'soon' is not a time"),
    ],
)
def test_what_is_refused(kafkafs: Kafkafs, tmp_path: Path, words: str, what: str) -> None:
    work(tmp_path / "data", 0, 1)
    out = tmp_path / "out"
    out.mkdir()
    line = words.replace("DIR", str(tmp_path / "data")).replace("OUT", str(out))
    assert what in stderr_of(kafkafs(*line.split()), 2)


def test_what_did_not_exist(kafkafs: Kafkafs, corpus: Corpus) -> None:
    """Errors name the time, and what there was."""
    root = corpus("groups43")

    def problem(*words: object) -> str:
        return stderr_of(kafkafs(*words, "--at", BEFORE_CHANGES))

    created = "topic reborn was created after 2026-11-23T22:50:14.201Z; then there were "
    assert f"{created}__cluster_metadata, __consumer_offsets, aged and 6 more" in problem(
        "topic", "list", root, "reborn"
    )
    assert "grown has no partition 2 (it has 0 to 1)" in problem("cat", root, "grown/2/values")
    assert "segments/ shows files as they are on the disk now" in problem(
        "ls", root, "main/0/segments"
    )
    extent = "is past the end of __consumer_offsets/0 (empty as of 2026-11-23T22:50:14.201Z"
    assert extent in problem("cat", root, "__consumer_offsets/0/offset/7")


def test_a_partition_that_was_empty(kafkafs: Kafkafs, both: tuple[Path, Path]) -> None:
    now, _ = both
    found = stderr_of(kafkafs("history", "--at", NOON - 4 * HOUR_MS, now, "t", "k"))
    assert found == "kafkafs: t: no record with key k is on the disk\n"


def test_the_configs_of_the_time(kafkafs: Kafkafs, corpus: Corpus) -> None:
    """Those of today apply if the cluster's metadata do not reach back that far."""
    root = corpus("kafka43-clean")
    configs = ["topic", "config", root, "compacted", "--json"]
    now = lines_of(kafkafs(*configs))
    assert '"cleanup.policy"' in "".join(now)
    assert lines_of(kafkafs(*configs, "--at", "2026-09-10")) == now


def test_a_time_to_come(kafkafs: Kafkafs, both: tuple[Path, Path]) -> None:
    """Shows everything, with retention of that time."""
    now, _ = both
    everything = lines_of(kafkafs("cat", now, "t/0/values"))
    assert lines_of(kafkafs("cat", "--at", "2123-01-01", now, "t/0/values")) == everything
