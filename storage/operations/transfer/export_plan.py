"""Plans an export: the ranges of offsets that are its units of work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ...errors import OtherJob, SchemaError, StorageError, UnknownPartition, UnknownTopic
from ...format.files.names import TopicPartition
from ...io.local_path import absolute_path
from ...log.read.view import View
from ...log_dirs.engine import Engine
from ...log_dirs.replicas import PREFERRED_DIR
from ...schemas.catalog import SchemaCatalog
from ...schemas.typed.decoder import DecodedColumns
from ...schemas.typed.reader_schema import TopicReaders
from ...schemas.typed.record_types import topic_readers
from ..offset_ranges import OffsetRange, OffsetSpan, cut_by_bytes
from ..range_reader import recreated
from ..survey import Survey
from .decoded_form import TYPED_FORMATS, check_parquet
from .description import ExportPlan
from .request import Export, NotExported

# The bytes of `.log` in a unit, which becomes a file for each period: all processors have work, and
# the files of large exports are large enough to be read fast.
_LEAST_BYTES: Final = 16 << 20
_MOST_BYTES: Final = 128 << 20
_USUAL_UNITS: Final = 32


@dataclass(frozen=True, slots=True)
class PlannedExport:
    """A plan, and the partitions that cannot be exported."""

    plan: ExportPlan
    refused: Sequence[NotExported] = ()


def absolute_log_dirs(engine: Engine) -> tuple[str, ...]:
    """Returns the paths of the directories for another process."""
    return tuple(absolute_path(each.path) for each in engine.log_dirs.dirs)


def plan_export(engine: Engine, request: Export) -> PlannedExport:
    """Plans the export of everything that is there now, or was at the engine's time. Raises
    UnknownTopic or UnknownPartition."""
    survey = Survey(engine)
    ranges: list[OffsetRange] = []
    empty: dict[TopicPartition, int] = {}
    refused: list[NotExported] = []
    keys = request.partitions(engine)
    topics = dict.fromkeys(topic for topic, _ in keys)
    schemas, unusable = _schemas(engine, topics, request)
    for key in keys:
        if key[0] in unusable:
            refused.append(NotExported.of(key, unusable[key[0]], "the partition is not exported"))
            continue
        try:
            found = survey.look(*key)
            start, end = _bounds(found.view, request)
            if start < end:
                span = OffsetSpan.of(found.view, start, end, found.topic_id)
                pieces = cut_by_bytes(span, _LEAST_BYTES, request.isolation)
                ranges += [replace(each, view=None) for each in pieces]
            else:
                empty[key] = end
        except (UnknownTopic, UnknownPartition):
            if request.selection:
                raise
        except (StorageError, OSError) as error:
            refused.append(NotExported.of(key, error, "the partition is not exported"))
    target = min(sum(each.size for each in ranges) // _USUAL_UNITS, _MOST_BYTES)
    configs = dict(_configs(engine, topics))
    return PlannedExport(
        ExportPlan(list(_joined(ranges, target)), empty, configs, schemas), refused
    )


def _bounds(view: View, request: Export) -> tuple[int, int]:
    """Returns the first offset to export and the one to end before."""
    start, end = view.start_offset, view.bound(request.isolation)
    if request.until_ms is not None:
        found = view.offset_for_time(request.until_ms, request.isolation)
        end = end if found is None else min(found, end)
    if request.since_ms is not None:
        found = view.offset_for_time(request.since_ms, request.isolation)
        start = end if found is None else min(max(found, start), end)
    return min(start, end), end


def _joined(ranges: Iterable[OffsetRange], most_bytes: int) -> Iterator[OffsetRange]:
    """Yields the ranges, adjacent ones joined as long as they have at most so many bytes."""
    held: OffsetRange | None = None
    for each in ranges:
        if (
            held is not None
            and (held.topic, held.partition, held.end) == (each.topic, each.partition, each.start)
            and held.size + each.size <= most_bytes
        ):
            size = held.size + each.size
            held = replace(held, end=each.end, size=size, is_last=each.is_last)
            continue
        if held is not None:
            yield held
        held = each
    if held is not None:
        yield held


def _configs(engine: Engine, topics: Iterable[str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yields the configs of each topic that differ from the defaults, without those of this run."""
    kept = {name: text for name, text in engine.configs.items() if name == PREFERRED_DIR}
    if len(kept) < len(engine.configs):
        engine = Engine(absolute_log_dirs(engine), kept, engine.at_ms)
    for topic in topics:
        try:
            yield topic, engine.topic_config(topic).changed
        except UnknownTopic:  # deleted meanwhile
            continue


def _schemas(
    engine: Engine, topics: Iterable[str], request: Export
) -> tuple[dict[str, TopicReaders], dict[str, SchemaError]]:
    """Returns the schemas of the columns of each topic that has any, and the topics whose schemas
    cannot be used, with the reason."""
    found: dict[str, TopicReaders] = {}
    unusable: dict[str, SchemaError] = {}
    if not request.decode or request.format not in TYPED_FORMATS:
        return found, unusable
    schemas = SchemaCatalog(engine).schemas()
    for topic in topics:
        try:
            readers = topic_readers(engine, schemas, topic)
            if readers:
                decoded = DecodedColumns.of_topic(schemas, topic, readers)
                if request.format == "parquet":
                    check_parquet(decoded.schema, topic)
                found[topic] = readers
        except SchemaError as error:
            unusable[topic] = error
    return found, unusable


def grown(known: ExportPlan, now: PlannedExport) -> PlannedExport:
    """Returns the known plan with what lies above its ranges now. Nothing is added to a partition
    whose topic was deleted and created again: its offsets mean other records."""
    ends: dict[TopicPartition, OffsetRange] = {}
    for each in known.ranges:
        ends[each.topic, each.partition] = each
    added: list[OffsetRange] = []
    refused = {(each.topic, each.partition): each for each in now.refused}
    for each in now.plan.ranges:
        key = (each.topic, each.partition)
        last = ends.get(key)
        if last is not None and {last.topic_id, each.topic_id} - {"", last.topic_id}:
            what = recreated(each.topic, last.topic_id, each.topic_id)
            refused[key] = NotExported(*key, f"{what}; export it to another directory")
            continue
        start = each.start if last is None else max(each.start, last.end)
        if start < each.end:
            added.append(replace(each, start=start))
    ranges = [*known.ranges, *added]
    read = {(each.topic, each.partition) for each in ranges}
    empty = {**known.empty, **now.plan.empty}
    plan = ExportPlan(
        ranges,
        {key: offset for key, offset in empty.items() if key not in read},
        {**known.configs, **now.plan.configs},
        {**now.plan.schemas, **known.schemas},
    )
    return PlannedExport(plan, list(refused.values()))


def check_version(job: object, output: str, version: int) -> None:
    """Raises OtherJob for an export that another version of kafkafs has started: its notes say
    less, or more."""
    if isinstance(job, dict) and job.get("job") == "export" and job.get("version") != version:
        why = "it holds an export started by another version of kafkafs"
        raise OtherJob(f"{output}: {why}; export to another directory")
