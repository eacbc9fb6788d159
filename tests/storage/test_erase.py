"""Erasing records: what remains is compared with a list, and no file keeps a trace."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.errors import RecordNotFound, UnknownTopic
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.erase import Erase, ErasedFile, erase
from kafkafs.storage.operations.history import History, history
from kafkafs.storage.operations.verifier import Verifier
from tests.erasing import KEY, TOPIC, make, open_manager, records_of, traces

ALL = Selection.of(TOPIC)


def run(manager: LogManager, request: Erase) -> list[ErasedFile]:
    rows = []
    for row in erase(manager, request):
        assert isinstance(row, ErasedFile), row
        assert ErasedFile.of_json(row.as_json()) == row
        rows.append(row)
    return rows


def findings(root: Path) -> list[str]:
    verifier = Verifier(Engine([str(root)]))
    return [str(each) for key in verifier.partitions() for each in verifier.partition(key)]


def sums(root: Path) -> dict[str, str]:
    files = sorted((root / f"{TOPIC}-0").glob("*.log"))
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def snapshot(root: Path) -> dict[str, bytes]:
    found = [file for file in root.rglob("*") if file.is_file()]
    return {str(file.relative_to(root)): file.read_bytes() for file in found}


def test_all_records_of_a_key_are_gone_and_all_others_are_as_they_were(tmp_path: Path) -> None:
    expected = make(tmp_path)
    before = sums(tmp_path)
    with open_manager(tmp_path) as manager:
        writer = manager.writer(TOPIC, 0)
        states, end = writer.producer_states(), writer.end_offset
        stable = writer.last_stable_offset
        rows = run(manager, Erase(ALL, key=KEY))
        assert (writer.producer_states(), writer.end_offset) == (states, end)
        assert writer.last_stable_offset == stable
        assert records_of(tmp_path) == expected
        assert not list(tmp_path.glob("*/*.deleted"))
    assert records_of(tmp_path) == expected
    after = sums(tmp_path)
    assert len(rows) > 5
    assert rows[0].size == max(row.size for row in rows)
    for row in rows:
        assert (row.sha256, row.new_sha256) == (before[row.file], after[row.file])
        assert row.new_size == Path(row.file).stat().st_size
    untouched = before.keys() - {row.file for row in rows}
    assert {file: before[file] for file in untouched} == {file: after[file] for file in untouched}
    assert traces(tmp_path) == []
    request = History(ALL, KEY, Isolation.READ_UNCOMMITTED)
    assert list(history(Engine([str(tmp_path)]), request)) == []
    assert findings(tmp_path) == []


def test_what_is_rebuilt_from_the_log_is_as_before(tmp_path: Path) -> None:
    """As after a crash, when nothing but the `.log` files is trusted."""
    expected = make(tmp_path)
    with open_manager(tmp_path) as manager:
        states = manager.writer(TOPIC, 0).producer_states()
        run(manager, Erase(ALL, key=KEY))
    kept = snapshot(tmp_path)
    for file in tmp_path.rglob("*"):
        if file.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            file.unlink()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    with open_manager(tmp_path) as manager:
        assert manager.writer(TOPIC, 0).producer_states() == states
    assert records_of(tmp_path) == expected
    rebuilt = snapshot(tmp_path)
    for name, data in kept.items():
        if name.endswith((".log", ".index", ".timeindex")):
            assert rebuilt[name] == data, name
    assert findings(tmp_path) == []


@pytest.mark.parametrize("prefix", [b"person-7", b"person-", b"p", b"person-70"])
def test_all_keys_with_a_prefix(tmp_path: Path, prefix: bytes) -> None:
    make(tmp_path)
    before = records_of(tmp_path)
    with open_manager(tmp_path) as manager:
        rows = run(manager, Erase(ALL, prefix=prefix))
    expected = [each for each in before if not (each.key or b"").startswith(prefix)]
    assert records_of(tmp_path) == expected
    assert sum(row.records for row in rows) == len(before) - len(expected)
    assert findings(tmp_path) == []


def test_one_offset(tmp_path: Path) -> None:
    make(tmp_path)
    before = records_of(tmp_path)
    for gone in (before[0], before[50], before[-1]):
        with open_manager(tmp_path) as manager:
            [row] = run(manager, Erase(Selection.of(f"{TOPIC}/0"), offset=gone.offset))
        assert row.records == 1
        before.remove(gone)
        assert records_of(tmp_path) == before
        assert findings(tmp_path) == []


def test_a_dry_run_finds_the_same_and_changes_nothing(tmp_path: Path) -> None:
    make(tmp_path)
    before = snapshot(tmp_path)
    found = list(erase(Engine([str(tmp_path)]), Erase(ALL, key=KEY, dry_run=True)))
    assert snapshot(tmp_path) == before
    with open_manager(tmp_path) as manager:
        done = run(manager, Erase(ALL, key=KEY))
    dry = [row for row in found if isinstance(row, ErasedFile)]
    assert [(row.file, row.records, row.sha256) for row in dry] == [
        (row.file, row.records, row.sha256) for row in sorted(done, key=lambda row: row.file)
    ]


def test_what_is_not_there_is_one_failure(tmp_path: Path) -> None:
    make(tmp_path)
    before = snapshot(tmp_path)
    engine = Engine([str(tmp_path)])
    [failed] = Erase(ALL, key=b"nobody").check(engine)
    assert isinstance(failed.cause, RecordNotFound)
    assert (failed.where, failed.error) == (TOPIC, "no record with key nobody is on the disk")
    assert list(erase(engine, Erase(ALL, key=b"nobody", dry_run=True))) == [failed]
    assert Erase(ALL, key=KEY).check(engine) == ()
    with pytest.raises(UnknownTopic):
        Erase(Selection.of("other"), key=KEY).check(engine)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"selection": ALL}, "exactly one"),
        ({"selection": ALL, "key": b"k", "offset": 1}, "exactly one"),
        ({"selection": ALL, "offset": 1}, "an offset needs exactly one"),
        ({"selection": ALL, "prefix": b""}, "must not be empty"),
        ({"key": b"k"}, "needs TOPIC"),
    ],
)
def test_requests_that_make_no_sense(wrong: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Erase(**wrong)
