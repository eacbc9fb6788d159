"""The corpora and their answers are complete and match each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import answers
from tests.conftest import differences, fingerprint

CRASHED = {"kafka43-crash", "kafka43-torn"}
READ_BY_A_CONSUMER = [name for name in answers.CORPORA if name not in CRASHED]


def test_every_corpus_has_answers_and_every_answer_a_corpus() -> None:
    folders = {path.name for path in (answers.DATA / "expected").iterdir()}
    archives = [*(answers.DATA / "corpora").iterdir(), *(answers.DATA / "others").iterdir()]
    assert set(answers.CORPORA) <= folders
    assert folders <= {path.name.removesuffix(".tar.gz") for path in archives}


def test_only_a_crashed_state_has_no_records() -> None:
    without = {name for name in answers.CORPORA if not answers.partitions_with_records(name)}
    assert without == CRASHED


@pytest.mark.parametrize("name", READ_BY_A_CONSUMER)
def test_records_lie_between_the_offsets_that_the_broker_named(name: str) -> None:
    offsets = answers.offsets(name)
    for topic, partition in answers.partitions_with_records(name):
        bounds = offsets[topic, partition]
        for isolation, end in (
            (answers.READ_COMMITTED, bounds.last_stable),
            (answers.READ_UNCOMMITTED, bounds.end),
        ):
            found = [r.offset for r in answers.records(name, topic, partition, isolation)]
            assert found == sorted(set(found))
            assert all(bounds.beginning <= offset < end for offset in found)


@pytest.mark.parametrize("name", answers.CORPORA)
def test_a_corpus_is_a_log_directory_or_several(
    name: str, corpus: Callable[[str], Path], expected: Callable[[str], Path]
) -> None:
    directories = [path.parent for path in corpus(name).glob("**/meta.properties")]
    found = {entry.name for directory in directories for entry in directory.iterdir()}
    assert {f"{topic}-{partition}" for topic, partition in answers.partitions(name)} <= found
    assert (expected(name) / "offsets.json").is_file()


def test_damage_is_listed_by_file(corpus: Callable[[str], Path]) -> None:
    torn = corpus("kafka43-torn")
    assert {entry["what"] for entry in answers.damage() if not (torn / entry["file"]).exists()} == {
        "removed"
    }


def test_a_changed_byte_shows_in_the_fingerprint(
    writable_corpus: Callable[[str], Path], corpus: Callable[[str], Path]
) -> None:
    copy = writable_corpus("kafka43-two-dirs")
    before = fingerprint(copy)
    assert differences(before, fingerprint(copy)) == []
    log = sorted(copy.glob("dir1/spread-*/*.log"))[0]
    stat = log.stat()
    with log.open("r+b") as file:
        file.write(b"\1")
    assert differences(before, fingerprint(copy)) == [str(log.relative_to(copy))]
    assert log.stat().st_size == stat.st_size
    assert log.name in {path.name for path in corpus("kafka43-two-dirs").glob("dir?/spread-*/*")}
