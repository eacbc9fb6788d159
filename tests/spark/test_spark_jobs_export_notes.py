"""Tests of export notes from untrusted sources: each error is named, and nothing is written."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkafs.spark import jobs
from kafkafs.storage.errors import CorruptError, StorageError
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.conftest import fingerprint
from tests.logs import write_log_dir
from tests.spark.in_process import NO_SESSION, in_process
from tests.spark.test_spark_jobs_salvage import findings
from tests.spark.test_spark_jobs_there_and_back import write

__all__ = ["in_process"]

pytestmark = pytest.mark.usefixtures("in_process")

#: The path to a value in a note: names of members and indexes of elements.
Place = tuple[str | int, ...]

HOSTILE: st.SearchStrategy[Any] = st.sampled_from([
    *(None, True, -1, 0, 1, 2**31, 2**62, 2**63, 10**40, 1.5, float("inf"), float("nan")),
    *("", ".", "..", "../x", "/etc/passwd", "a\0b", "\ud800", "é", "t" * 250, "__cluster_metadata"),
    *("topic=t/date=2018-05-15/../../../x", "topic=t/date=1970-01-01/part-00000", "9" * 5000),
    *([], {}, [None], [[]], {"": ""}, {"../x": {}}, {"t": {"segment.bytes": "many"}}),
])  # fmt: skip


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """An export of two topics, one with an empty partition."""
    root = tmp_path / "a"
    ends = {
        ("t", 0): write(root / "t-0", 5, [(0, 20, 0), (3, 20, 2)]),
        ("t", 1): write(root / "t-1", 7, []),
        ("u", 0): write(root / "u-0", 0, [(0, 5, 0)]),
    }
    write_log_dir(root, ends, start_offsets={("t", 0): 5, ("t", 1): 7})
    with LogManager(str(root)) as engine:
        engine.set_topic_config("t", {"retention.ms": "-1"})
    jobs.export(NO_SESSION, str(root), str(tmp_path / "out"), format="jsonl")
    return tmp_path / "out"


def note_files(output: Path) -> list[Path]:
    return sorted((output / "_kafkafs").iterdir())


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yields the places of all values within a value."""
    members: Any = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    for name, each in members:
        yield (*place, name)
        yield from places(each, (*place, name))


def change(note: Any, place: Place, how: Callable[[Any, Any], None]) -> Any:
    """Returns the note with a value changed: `how` gets its container and its name or index."""
    changed = copy.deepcopy(note)
    holder = changed
    for name in place[:-1]:
        holder = holder[name]
    how(holder, place[-1])
    return changed


def put(value: object) -> Callable[[Any, Any], None]:
    def how(holder: Any, name: Any) -> None:
        holder[name] = value

    return how


def remove(holder: Any, name: Any) -> None:
    del holder[name]


def twice(holder: Any, name: Any) -> None:
    if isinstance(holder, list):
        holder.append(copy.deepcopy(holder[name]))


def imported(output: Path) -> Path:
    target = output.parent / "in"
    jobs.import_(NO_SESSION, str(target), str(output))
    return target


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_change_of_the_notes(output: Path, data: st.DataObject) -> None:
    """A changed note is rejected with the file and the field, or it does no harm."""
    file = data.draw(st.sampled_from(note_files(output)))
    original = file.read_text()
    note = json.loads(original)
    place = data.draw(st.sampled_from(sorted(places(note), key=str)))
    how = data.draw(HOSTILE.map(put) | st.sampled_from([remove, twice]))
    file.write_text(json.dumps(change(note, place, how)))
    before = fingerprint(output)
    target = output.parent / "in"
    error = failure(lambda: imported(output))
    if error is None:
        assert findings(target) == []
        assert set(Engine(str(target)).topics()) <= {"t", "u"}
    else:
        assert isinstance(error, CorruptError) or "partitions requested, must be 1 to" in str(error)
        assert not target.exists() or Engine(str(target)).topics() == {}
    if isinstance(error, CorruptError):
        assert f"{error.file}/".startswith(f"{output}/")
        assert error.file != str(file) or error.what.startswith(("field ", "not an export"))
    assert fingerprint(output) == before
    assert {path.name for path in output.parent.iterdir()} <= {
        *("a", "out", "in", ".in.kafkafs-staging")
    }
    file.write_text(original)
    shutil.rmtree(target, ignore_errors=True)
    shutil.rmtree(output.parent / ".in.kafkafs-staging", ignore_errors=True)


def failure(call: Callable[[], object]) -> StorageError | None:
    try:
        call()
    except StorageError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        (("plan", "ranges", 0, "topic"), "../x", "'../x' cannot be a topic's name"),
        (("plan", "ranges", 0, "topic"), "a\0b", r"'a\\x00b' cannot be a topic's name"),
        (("plan", "ranges", 0, "partition"), -1, "is not a whole number from 0"),
        (("plan", "ranges", 0, "partition"), True, "is not a whole number from 0"),
        (("plan", "ranges", 0, "start"), "5", "is not a whole number from 0"),
        (
            ("plan", "ranges", 0, "end"),
            2**63,
            "is not a whole number from 6 to 9223372036854775807",
        ),
        (("plan", "ranges", 0, "end"), 2**62, "is more than 1099511627776 offsets above 5"),
        (("plan", "ranges", 0, "is_last"), 1, "is not true or false"),
        (("plan", "ranges"), {}, "is not a list"),
        (("plan", "empty", 0, "offset"), 1.5, "is not a whole number"),
        (("plan", "empty", 0, "partition"), 0, "t-0 is listed twice"),
        (("plan", "configs", "t"), {"retention.ms": "soon"}, "retention.ms: must be"),
        (("plan", "configs", "t"), {"retention": "1"}, "retention: "),
        (("plan",), None, "is not an object"),
        (("version",), "2", "is not a whole number from 1"),
    ],
)
def test_a_wrong_plan_is_named(output: Path, place: Place, value: object, why: str) -> None:
    file = output / "_kafkafs/job.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()), place, put(value))))
    with pytest.raises(CorruptError, match=f"job.json: field {place[0]}.*{why}"):
        imported(output)
    assert not (output.parent / "in").exists()


def test_a_range_that_is_there_twice(output: Path) -> None:
    file = output / "_kafkafs/job.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()), ("plan", "ranges", 0), twice)))
    with pytest.raises(CorruptError, match=r"plan\.ranges\[2\]\.start: 5 is below the end of the"):
        imported(output)


def note_of(output: Path, topic: str) -> tuple[Path, Any]:
    for file in note_files(output):
        note = json.loads(file.read_text())
        if "files" in note and note["files"][0]["path"].startswith(f"topic={topic}/"):
            return file, note
    raise AssertionError(topic)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../a/u-0/00000000000000000000.log",
        "topic=u/date=1970-01-01/../date=1970-01-01/part-00000-00000000000000000000.jsonl",
        "topic=t/date=1970-01-01/part-00000-00000000000000000005.jsonl",
        "topic=u/date=1970-01-01/part-00000-00000000000000000000.jsonl\0",
        "topic=u/date=1970-01-01/part-00000-00000000000000000000.log",
        "",
        ["topic=u"],
    ],
)
def test_a_path_that_no_export_makes(output: Path, path: object) -> None:
    file, note = note_of(output, "u")
    file.write_text(json.dumps(change(note, ("files", 0, "path"), put(path))))
    with pytest.raises(CorruptError, match=r"unit-.*: field files\[0\]\.path: .*not a "):
        imported(output)
    assert not (output.parent / "in").exists()


def replaced(path: Path, how: str) -> None:
    """Replaces a file, or its directory, with something else."""
    outside = path.parents[3] / "outside"
    if how == "link to a directory":
        shutil.move(path.parent, outside)
        path.parent.symlink_to(outside)
        return
    shutil.move(path, outside)
    if how == "link":
        path.symlink_to(outside)
    elif how == "fifo":
        os.mkfifo(path)
    elif how == "directory":
        path.mkdir()


@pytest.mark.parametrize("how", ["nothing", "link", "link to a directory", "fifo", "directory"])
def test_what_is_no_file_of_the_export(output: Path, how: str) -> None:
    _, note = note_of(output, "u")
    path = output / note["files"][0]["path"]
    replaced(path, how)
    with pytest.raises(CorruptError) as refused:
        imported(output)
    assert refused.value.file == str(path)
    assert not (output.parent / "in").exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "\ud800", "\xff", '{"job": "other"}', "[]"]
)
def test_notes_that_are_none(output: Path, text: str) -> None:
    file = output / "_kafkafs/job.json"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(CorruptError, match=r"_kafkafs/job\.json: (not a note|not an export)"):
        imported(output)


def test_a_note_of_a_range_that_is_none(output: Path) -> None:
    file, _ = note_of(output, "u")
    file.write_text("{")
    with pytest.raises(CorruptError, match=r"unit-.*: not a note"):
        imported(output)
    file.unlink()
    file.symlink_to(output / "_kafkafs/job.json")
    with pytest.raises(CorruptError, match=r"unit-.*: a symbolic link"):
        imported(output)
    assert not (output.parent / "in").exists()
