"""The description and notes of an export, written by `export` and read by `import`.

`_kafkafs/job.json` describes the export, and a note for each range of offsets names the files with
its records (see `unit_notes`). In version 3 of the description, "id" is that of the export, and
"plan" contains:

    ranges   the planned ranges with the fields of OffsetRange, in the order in which they were
             added; a partition's first begins at its log start offset, or where the export does,
             and its last ends where the export does
    empty    the partitions without ranges, {"topic", "partition", "offset"}: where the log begins
             and ends
    configs  {topic: {name: value}}: all configs that differ from the defaults
    schemas  {topic: {"value", "key"}}: of decoded records, the schemas of the columns, as they were
             when the topic was first exported

"decode" is true if records are decoded. The note of a range lists its files, each with "path",
"rows", "bytes" and "crc32c", the CRC-32C of its content (not in the notes of older kafkafs).

Version 2 has no id. In version 1, which has no version field, "plan" is the list of ranges.

An export may come from an untrusted source. The results of `read_export` are validated: names are
legal, numbers in range, and every file is a regular one inside the export, reached without symbolic
links.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from ...config.kafka import (
    Configs,
    check_topic_configs,
    lag_conflict,
    topic_config,
)
from ...errors import ConfigError, CorruptError, LogDirError, SegmentGone
from ...format.files.names import METADATA_TOPIC, TopicPartition, is_legal_topic
from ...format.layout import MAX_INT32, MAX_OFFSET
from ...format.primitives import is_uuid_text
from ...io.directory import ReadableFile
from ...io.disk import DirFd
from ...log.read.transactions import Isolation
from ...log_dirs.selection import EVERYTHING, Selection
from ...schemas.typed.reader_schema import TopicReaders
from ...wording import printable
from ..offset_ranges import OffsetRange
from ..unit_notes import JOB_NOTE, read_note, unit_note
from .request import FORMATS

#: The directory of the notes in the output; Spark and others ignore such names.
NOTES: Final = "_kafkafs"
VERSION: Final = 3
#: The date, and the hour, of records without a timestamp: the name that Hive and Spark use for
#: null.
NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"

# The name of a partition directory, topic-partition, has at most 255 bytes.
_MAX_NAME: Final = 255
# The most offsets of a partition that the batches of an import can cover; see `import_`.
_MAX_SPAN: Final = 1 << 40
_MAX_CHECKSUM: Final = (1 << 32) - 1
_PERIOD: Final = re.compile(
    rf"date=(-?[0-9]{{4,9}}-[0-9]{{2}}-[0-9]{{2}}(/hour=[0-9]{{2}})?|{NO_DATE}(/hour={NO_DATE})?)"
)
_FILE: Final = re.compile(
    rf"part-([0-9]{{5,10}})-([0-9]{{20}})(-[0-9]{{1,9}})?\.({'|'.join(FORMATS)})"
)


@dataclass(frozen=True, slots=True)
class ExportedRange:
    """The `number`-th range of the plan, with the paths of its files, relative to the export, of
    `size` bytes and `records` in total; `first_offset` and `last_offset` are those of its records,
    -1 without any. `checksums`: the CRC-32C of each file, -1 if it is not known."""

    number: int
    range: OffsetRange
    files: tuple[str, ...]
    size: int
    records: int
    first_offset: int
    last_offset: int
    checksums: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExportedPartition:
    """Offsets [`start_offset`, `end_offset`) of a partition, in ascending ranges without overlap;
    there are none if the two are equal."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    ranges: tuple[ExportedRange, ...]

    @property
    def records(self) -> int:
        return sum(each.records for each in self.ranges)

    @property
    def first_record(self) -> int:
        """The offset of the first record, `end_offset` without any."""
        offsets = (each.first_offset for each in self.ranges if each.records)
        return next(offsets, self.end_offset)


@dataclass(frozen=True, slots=True)
class ExportedLogs:
    """The content of an export: partitions by topic and number, and the configs of their topics.
    `planned`: the number of ranges of the whole plan, which only grows. `identity`: the same for
    every state of this export, and for no other one; "" for one that an earlier version of kafkafs
    has started."""

    partitions: Sequence[ExportedPartition]
    configs: Mapping[str, Mapping[str, str]]
    planned: int
    identity: str = ""

    @property
    def topics(self) -> list[str]:
        return list(dict.fromkeys(each.topic for each in self.partitions))


def unit_name(each: OffsetRange) -> str:
    """Returns the unit name under which a range is noted."""
    return f"{each.topic}-{each.partition} {each.start}-{each.end}"


def topic_dir(topic: str) -> str:
    """Returns the directory of a topic's files."""
    return f"topic={topic}"


def file_name(each: OffsetRange, number: int, format: str) -> str:
    """Returns the name of a range's file in a period, or of its `number`-th one, from 0 on. Every
    attempt at a range uses the same names."""
    again = f"-{number}" if number else ""
    return f"part-{each.partition:05}-{each.start:020}{again}.{format}"


def file_origin(name: str) -> tuple[int, int] | None:
    """Returns partition and first offset of the range that a file is from, None if no export has
    such a file."""
    parts = _FILE.fullmatch(name)
    return (int(parts[1]), int(parts[2])) if parts else None


# -- writing ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What an export is to contain. `empty`: partitions without records to read, and the offset
    where each begins and ends. `schemas`: those of decoded columns, by topic."""

    ranges: Sequence[OffsetRange]
    empty: Mapping[TopicPartition, int]
    configs: Mapping[str, Mapping[str, str]]
    schemas: Mapping[str, TopicReaders] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        schemas = {topic: readers.as_json() for topic, readers in self.schemas.items()}
        return {
            "ranges": [_range_as_json(each) for each in self.ranges],
            "empty": [
                {"topic": topic, "partition": number, "offset": offset}
                for (topic, number), offset in sorted(self.empty.items())
            ],
            "configs": self.configs,
            **({"schemas": schemas} if schemas else {}),
        }


def _range_as_json(each: OffsetRange) -> dict[str, Any]:
    return {
        "topic": each.topic,
        "partition": each.partition,
        "start": each.start,
        "end": each.end,
        "size": each.size,
        "is_last": each.is_last,
        "topic_id": each.topic_id,
    }


# -- reading ---------------------------------------------------------------------------------------


def read_plan(source: str) -> ExportPlan:
    """Reads the plan of the export in a directory. Raises CorruptError, naming the field, if it is
    malformed."""
    job = _job(source)
    version = job.get("version", 1).integer(1)
    if version > VERSION:
        raise job["version"].wrong(
            f"{version} was written by a newer kafkafs; this one reads up to {VERSION}"
        )
    plan = job["plan"]
    listed = plan if version == 1 else plan["ranges"]
    ranges = [_range(each) for each in listed.elements()]
    ends: dict[TopicPartition, int] = {}
    for each, value in zip(ranges, listed.elements(), strict=True):
        if each.start < ends.get((each.topic, each.partition), 0):
            raise value["start"].wrong(f"{each.start} is below the end of the range before it")
        ends[each.topic, each.partition] = each.end
    _check_spans(ranges, listed)
    if version == 1:
        return ExportPlan(ranges, {}, {})
    empty: dict[TopicPartition, int] = {}
    for value in plan["empty"].elements():
        key = (_topic(value["topic"]), _partition(value))
        if key in empty or key in ends:
            raise value.wrong(f"{key[0]}-{key[1]} is listed twice")
        empty[key] = value["offset"].integer()
    schemas = dict(_schemas(plan.get("schemas", {})))
    return ExportPlan(ranges, empty, dict(_configs(plan["configs"])), schemas)


def read_export(source: str, selection: Selection = EVERYTHING) -> ExportedLogs:
    """Reads a finished export, or the selected topics and partitions of it.

    Raises LogDirError if the directory is missing, or the records are decoded; CorruptError if a
    note is malformed (naming note and field) or a file is missing; UnknownTopic or UnknownPartition
    if the export lacks a selected one.
    """
    _refuse_missing(source)
    plan = read_plan(source)
    if _job(source).get("decode", False).value:
        why = "its records are decoded, so that the original bytes are missing"
        raise LogDirError(source, f"{why}; import an export without --decode")
    found: dict[TopicPartition, list[tuple[int, OffsetRange]]] = {key: [] for key in plan.empty}
    for number, each in enumerate(plan.ranges):
        found.setdefault((each.topic, each.partition), []).append((number, each))
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(found):
        numbers.setdefault(topic, []).append(number)
    partitions = []
    for key in selection.partitions(numbers):
        ranges = tuple(_exported_range(source, *each) for each in found[key])
        start = ranges[0].range.start if ranges else plan.empty[key]
        end = ranges[-1].range.end if ranges else start
        partitions.append(ExportedPartition(*key, start, end, ranges))
    identity = _job(source).get("id", "").text()
    return ExportedLogs(partitions, plan.configs, len(plan.ranges), identity)


def is_export(source: str) -> bool:
    """Returns whether a directory has the notes of an export."""
    try:
        DirFd(source).child(NOTES).stat(JOB_NOTE)
    except (SegmentGone, LogDirError, CorruptError):
        return False
    return True


def noted_isolation(output: str) -> Isolation | None:
    """Returns the isolation level of the export in a directory, which is that of whatever continues
    it; None if there is none."""
    if not is_export(output):
        return None
    level = _job(output)["isolation"]
    if level.text() not in [each.value for each in Isolation]:
        raise level.wrong(f"{level.text()!r} is not an isolation level")
    return Isolation(level.text())


def _refuse_missing(source: str) -> None:
    try:
        DirFd(source).hold()
    except SegmentGone:
        raise LogDirError(source, "no such directory") from None


def open_file(source: str, path: str) -> ReadableFile:
    """Opens the file at `path` in the export. Raises CorruptError unless it is a regular file,
    reached without a symbolic link."""
    *folders, name = path.split("/")
    directory = DirFd(source)
    for folder in folders:
        directory = directory.child(folder)
    try:
        return directory.open(name)
    except (SegmentGone, LogDirError) as error:
        what = f"missing, but named in the notes of the export: {error}"
        raise CorruptError(what, posixpath.join(source, path)) from None


@dataclass(frozen=True, slots=True)
class _Value:
    """An untrusted value in a note, and its place: the note's file and the field."""

    file: str
    field: str
    value: Any

    def wrong(self, what: str) -> CorruptError:
        field = f"field {self.field}: " if self.field else ""
        return CorruptError(f"{field}{what}", self.file)

    def get(self, name: str, default: object = None) -> _Value:
        if not isinstance(self.value, dict):
            raise self.wrong("is not an object")
        field = f"{self.field}.{name}" if self.field else name
        return _Value(self.file, field, self.value.get(name, default))

    def __getitem__(self, name: str) -> _Value:
        found = self.get(name)
        if name not in self.value:
            raise found.wrong("is missing")
        return found

    def elements(self) -> list[_Value]:
        if not isinstance(self.value, list):
            raise self.wrong("is not a list")
        return [
            _Value(self.file, f"{self.field}[{number}]", each)
            for number, each in enumerate(self.value)
        ]

    def members(self) -> Iterator[tuple[str, _Value]]:
        if not isinstance(self.value, dict):
            raise self.wrong("is not an object")
        for name, each in self.value.items():
            yield name, _Value(self.file, f"{self.field}.{printable(name)}", each)

    def integer(self, low: int = 0, high: int = MAX_OFFSET) -> int:
        if type(self.value) is not int or not low <= self.value <= high:
            raise self.wrong(f"is not a whole number from {low} to {high}")
        return self.value

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.wrong("is not a string")
        return self.value


def _job(source: str) -> _Value:
    directory = DirFd(source).child(NOTES)
    job = read_note(directory, JOB_NOTE)
    file = directory.path_of(JOB_NOTE)
    if not isinstance(job, dict) or job.get("job") != "export":
        raise CorruptError("not an export: it has no plan", file)
    return _Value(file, "", job)


def _topic(value: _Value) -> str:
    topic = value.text()
    if not is_legal_topic(topic) or topic == METADATA_TOPIC:
        raise value.wrong(f"{topic!r} cannot be a topic's name")
    return topic


def _partition(value: _Value) -> int:
    number = value["partition"].integer(0, MAX_INT32)
    if len(f"{_topic(value['topic'])}-{number}") > _MAX_NAME:
        raise value["partition"].wrong(f"{number} is too long for a directory's name")
    return number


def _range(value: _Value) -> OffsetRange:
    start = value["start"].integer()
    if type(value["is_last"].value) is not bool:
        raise value["is_last"].wrong("is not true or false")
    return OffsetRange(
        topic=_topic(value["topic"]),
        partition=_partition(value),
        start=start,
        end=value["end"].integer(start + 1),
        size=value["size"].integer(),
        is_last=value["is_last"].value,
        topic_id=_topic_id(value.get("topic_id", "")),
    )


def _topic_id(value: _Value) -> str:
    """Returns the id, "" for a topic without one and in the notes of an older kafkafs."""
    if value.text() and not is_uuid_text(value.text()):
        raise value.wrong(f"{value.text()!r} is not a topic's id")
    return value.text()


def _check_spans(ranges: Sequence[OffsetRange], listed: _Value) -> None:
    starts: dict[TopicPartition, int] = {}
    for each, value in zip(ranges, listed.elements(), strict=True):
        start = starts.setdefault((each.topic, each.partition), each.start)
        if each.end - start > _MAX_SPAN:
            raise value["end"].wrong(f"{each.end} is more than {_MAX_SPAN} offsets above {start}")


def _configs(value: _Value) -> Iterator[tuple[str, Mapping[str, str]]]:
    for topic, configs in value.members():
        if not is_legal_topic(topic):
            raise configs.wrong("cannot be a topic's name")
        texts = {name: each.text() for name, each in configs.members()}
        try:
            check_topic_configs(texts, carried_over=True)
        except ConfigError as error:
            raise configs.wrong(str(error)) from None
        conflict = lag_conflict(topic_config(Configs(topic_file=texts)).config)
        if conflict is not None:
            raise configs.wrong(str(conflict))
        yield topic, texts


def _schemas(value: _Value) -> Iterator[tuple[str, TopicReaders]]:
    for topic, each in value.members():
        try:
            yield topic, TopicReaders.of_json(each.value)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise each.wrong("is not a pair of schemas") from None


def _exported_range(source: str, number: int, each: OffsetRange) -> ExportedRange:
    """Returns the content of the note of a range, the `number`-th of the plan."""
    directory = DirFd(source).child(NOTES)
    name = unit_note(unit_name(each))
    found = read_note(directory, name)
    if found is None:
        raise CorruptError(f"the export is not finished: {each} are missing", source)
    note = _Value(directory.path_of(name), "", found)
    listed = note["files"].elements()
    paths = [_path(file["path"], each) for file in listed]
    for path, again in pairwise(sorted(paths)):
        if path == again:
            raise note["files"].wrong(f"{path} is listed twice")
    for path in paths:
        open_file(source, path)
    records = note["records"].integer(0, each.end - each.start)
    if sum(file["rows"].integer() for file in listed) != records:
        raise note["records"].wrong(f"{records} is not the number of rows in the files")
    first = last = -1
    if records:
        first = note["firstOffset"].integer(each.start, each.end - records)
        last = note["lastOffset"].integer(first + records - 1, each.end - 1)
    size = sum(file["bytes"].integer() for file in listed)
    checksums = tuple(file.get("crc32c", -1).integer(-1, _MAX_CHECKSUM) for file in listed)
    return ExportedRange(number, each, tuple(paths), size, records, first, last, checksums)


def _path(value: _Value, each: OffsetRange) -> str:
    """Returns the path of a file, which must be one that the export of the range creates."""
    path = value.text()
    topic, _, rest = path.partition("/")
    period, _, name = rest.rpartition("/")
    origin = file_origin(name)
    if topic != topic_dir(each.topic) or _PERIOD.fullmatch(period) is None or origin is None:
        raise value.wrong(f"{path!r} is not a file that an export of {each} creates")
    if origin != (each.partition, each.start):
        raise value.wrong(f"{path} does not belong to the range {each}")
    return path
