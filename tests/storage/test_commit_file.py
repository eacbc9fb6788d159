"""Tests of the commit file: any content is read or rejected, and nothing outside of staging places
is touched for it."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import CorruptError
from kafkafs.storage.ingest.commit_file import (
    COMMIT_FILE,
    CommitFile,
    CommitRecord,
    CommitRecords,
    IngestedPart,
    IngestWrite,
    format_commit_records,
    parse_commit_records,
)
from kafkafs.storage.ingest.two_phase import resume_committed
from kafkafs.storage.io.durable import WritableDirFd
from kafkafs.storage.log_manager import LogManager
from tests.staging import NOW_MS, stage


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    with LogManager(str(path), clock=SetClock(NOW_MS)) as engine:
        engine.create_topic("t", 2)
    return path


@given(st.sampled_from([b"0\n", b"1\n"]), st.binary())
def test_any_bytes_are_notes_or_corrupt(version: bytes, data: bytes) -> None:
    try:
        noted = parse_commit_records(version + data)
    except CorruptError:
        return
    assert parse_commit_records(format_commit_records(noted)) == noted


@pytest.mark.parametrize(
    "line",
    [
        '{"writer": "w", "epoch": -1}',
        '{"writer": "w", "epoch": null}',
        '{"writer": 1, "epoch": 1}',
        '{"epoch": 1}',
        "[]",
        "[" * 100_000,
        '{"writer": "w", "epoch": 1, "parts": [{"topic": "t"}]}',
        '{"writer": "w", "epoch": 1, "parts": [{"topic": "t", "batch": {"base_offset": 0}}]}',
        '{"writer": "w", "epoch": null, "topics": ["t"]}',
        '{"writer": "w", "epoch": null, "topics": {"t": 1}}',
    ],
)
def test_damaged_notes(log_dir: Path, line: str) -> None:
    (log_dir / COMMIT_FILE).write_text(f"0\n{line}\n")
    with pytest.raises(CorruptError, match=r"kafkafs\.placed.*line 2.*move the file away"):
        LogManager(str(log_dir))
    (log_dir / COMMIT_FILE).rename(log_dir / "aside")
    LogManager(str(log_dir)).close()


_PLACED: dict[str, Any] = {
    "writer": "w",
    "epoch": 3,
    "parts": [
        {
            "topic": "t",
            "partition": 0,
            "leader_epoch": 0,
            "staged": [
                {
                    "path": "/nowhere/kafkafs-staging/job/0-0/t-0",
                    "topic": "t",
                    "partition": 0,
                    "keeps_offsets": False,
                    "segments": [{"base_offset": 0, "size": 70, "end_offset": 1, "crc": 5}],
                    "records": 1,
                }
            ],
            "segments": [{"base_offset": 0, "size": 70, "end_offset": 1, "crc": 5}],
        }
    ],
}
_HOSTILE: st.SearchStrategy[Any] = st.sampled_from(
    [
        "../x",
        "",
        ".",
        "/",
        "/x/kafkafs-staging/a/../t-0",
        "/x/kafkafs-staging/a/b/c/t-0",
        "\ud800",
        "a/b",
        "\0",
        -1,
        1 << 31,
        1 << 63,
        1 << 70,
        1.5,
        [],
        {},
        None,
        True,
    ]
)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Returns each container in a JSON value with each of its keys."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            found += [(value, key), *_places(value[key])]
    return found


@given(st.data())
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_opening_takes_any_notes_or_names_the_file(log_dir: Path, data: st.DataObject) -> None:
    """Changes one value or key of a write, or bytes of the file."""
    note = copy.deepcopy(_PLACED)
    if data.draw(st.booleans()):
        (note["parts"][0]["batch"],) = note["parts"][0].pop("segments")
    container, key = data.draw(st.sampled_from(_places(note)))
    if data.draw(st.booleans()):
        del container[key]
    else:
        container[key] = data.draw(_HOSTILE)
    written = bytearray(f"1\n{json.dumps(note)}\n".encode())
    for at in data.draw(st.lists(st.integers(0, len(written) - 1), max_size=2)):
        written[at] = data.draw(st.integers(0, 255))
    (log_dir / COMMIT_FILE).write_bytes(written)
    try:
        LogManager(str(log_dir)).close()
    except CorruptError as error:
        where = (error.file, error.what.partition(" ")[0])
    else:
        where = (str(log_dir / COMMIT_FILE), "line")
    assert where == (str(log_dir / COMMIT_FILE), "line")
    (log_dir / COMMIT_FILE).unlink(missing_ok=True)


def test_notes_name_nothing_but_staged_parts(log_dir: Path) -> None:
    (part,) = stage(log_dir, "j", {("t", 0): [["a"]]})
    other = log_dir.parent / "others" / "t-0"
    for path in (log_dir, log_dir / "t-0", other, log_dir / "x" / "j" / "0-0" / "t-0"):
        wrong = dataclasses.replace(part, path=str(path))
        placed = IngestedPart("t", 0, 0, (wrong,), part.segments)
        with pytest.raises(CorruptError, match="line 2"):
            parse_commit_records(
                format_commit_records(
                    CommitRecords(pending=[CommitRecord(IngestWrite("j"), (placed,))])
                )
            )
    noted = CommitRecords(
        pending=[CommitRecord(IngestWrite("j"), (IngestedPart("t", 0, 0, (part,), part.segments),))]
    )
    assert parse_commit_records(format_commit_records(noted)).pending == noted.pending
    joined = dataclasses.replace(noted.pending[0].parts[0], is_joined=True)
    noted = CommitRecords(pending=[CommitRecord(IngestWrite("j"), (joined,))])
    assert parse_commit_records(format_commit_records(noted)).pending == noted.pending


@pytest.mark.parametrize("linked", ["job", "attempt", "t-0"])
def test_a_link_in_a_staging_place_is_not_followed(log_dir: Path, linked: str) -> None:
    """Its target stays as it is, say another cluster's directory after a crash."""
    (part,) = stage(log_dir, "j", {("t", 0): [["a"]]})
    victim = log_dir.parent / "victim" / "attempt" / "t-0"
    shutil.copytree(part.path, victim)
    before = {path.name: path.read_bytes() for path in victim.iterdir()}
    assert before
    job = log_dir.parent / "other.kafkafs-staging" / "job"
    link = {"job": job, "attempt": job / "attempt", "t-0": job / "attempt" / "t-0"}[linked]
    target = {"job": victim.parent.parent, "attempt": victim.parent, "t-0": victim}[linked]
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    wrong = dataclasses.replace(part, path=str(job / "attempt" / "t-0"))
    placed = IngestedPart("t", 0, 0, (wrong,), part.segments)
    noted = CommitRecords(pending=[CommitRecord(IngestWrite("j"), (placed,))])
    (log_dir / COMMIT_FILE).write_bytes(format_commit_records(noted))
    LogManager(str(log_dir)).close()
    assert {path.name: path.read_bytes() for path in victim.iterdir()} == before


def test_only_files_of_the_write_are_discarded(log_dir: Path) -> None:
    """A foreign file at the same offset must not be removed."""
    (part,) = stage(log_dir, "j", {("t", 0): [["a"]]})
    others = log_dir / "t-0" / f"{5:020}.log.swap"
    others.write_bytes(b"the only copy of somebody's records")
    segment = dataclasses.replace(part.segments[0], base_offset=5, end_offset=6)
    placed = IngestedPart("t", 0, 0, (part,), (segment,))
    noted = CommitRecords(pending=[CommitRecord(IngestWrite("j"), (placed,))])
    commits = CommitFile([], list)
    commits._pending = {each.write: each for each in noted.pending}
    resume_committed(WritableDirFd(log_dir), commits)
    assert others.exists()
