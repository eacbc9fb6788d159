"""Lists the schemas of a registry that are still on the disk, and which records use each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..config.kafka import reader_config
from ..errors import StorageError
from ..format.files.names import INTERNAL_TOPICS, METADATA_TOPIC, TopicPartition
from ..format.records.columns import Damage
from ..io.retry import retry_if_gone
from ..log.read.transactions import Isolation
from ..log_dirs.engine import Engine
from ..log_dirs.selection import EVERYTHING, Selection
from ..schemas.framed_columns import framed_rows
from ..schemas.framing import Frame
from ..schemas.registry.image import RegistryImage, read_registry
from ..schemas.registry.state import RegisteredVersion
from ..schemas.schema import Schema, SchemaDeletion
from .request import SILENT, PartitionFailed, ProgressListener


@dataclass(frozen=True, slots=True)
class ListSchemas:
    """Lists the versions of these subjects, or of all if none is named. `only_deleted`: those that
    were deleted. `with_usage`: also counts the records that use each schema, in `selection`."""

    subjects: tuple[str, ...] = ()
    only_deleted: bool = False
    with_usage: bool = False
    selection: Selection = EVERYTHING

    @property
    def writes(self) -> bool:
        return False

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        return ()


@dataclass(frozen=True, slots=True, order=True)
class SchemaUse:
    """The number of records of a topic whose keys or values ("key", "value") use a schema."""

    topic: str
    field: str
    records: int

    def as_json(self) -> dict[str, Any]:
        return {"topic": self.topic, "field": self.field, "records": self.records}


@dataclass(frozen=True, slots=True)
class ListedSchema:
    """A version of a subject. `uses`: how many records use its schema, also those that were written
    for another subject with the same one; None if they were not counted."""

    version: RegisteredVersion
    uses: tuple[SchemaUse, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        row = self.version.as_json()
        if self.uses is not None:
            row["usage"] = [each.as_json() for each in self.uses]
        return row


def registry_of(engine: Engine) -> RegistryImage:
    """Returns the registry in the directories; empty if they have none."""
    return read_registry(engine, reader_config(engine.configs).kafkafs_schemas_topic)


def list_schemas(
    engine: Engine, request: ListSchemas, progress: ProgressListener = SILENT
) -> Iterator[ListedSchema | PartitionFailed]:
    """Yields the versions by subject and version, after what is damaged in the registry's topic;
    versions that were replaced by others stand before them. Raises UnknownSchema."""
    image = registry_of(engine)
    topic = reader_config(engine.configs).kafkafs_schemas_topic
    wanted: Sequence[RegisteredVersion] = image.versions
    if request.subjects:
        named = dict.fromkeys(request.subjects)
        wanted = [each for name in named for each in image.of_subject(name)]
    for problem in image.problems:
        yield PartitionFailed.of(problem, f"{topic}-0")
    if request.only_deleted:
        wanted = [each for each in wanted if each.deletion is not SchemaDeletion.NONE]
    if not request.with_usage:
        yield from map(ListedSchema, wanted)
        return
    usage = _Usage(engine, image)
    yield from usage.count(request, topic, progress)
    for each in wanted:
        yield ListedSchema(each, usage.of(each.schema))


class _Usage:
    """Counts the records that use each schema."""

    def __init__(self, engine: Engine, image: RegistryImage) -> None:
        self._engine = engine
        self._source = image.including_deleted()
        self._found: defaultdict[Schema, Counter[tuple[str, str]]] = defaultdict(Counter)

    def of(self, schema: Schema) -> tuple[SchemaUse, ...]:
        counts: Mapping[tuple[str, str], int] = self._found.get(schema, {})
        return tuple(sorted(SchemaUse(*place, records) for place, records in counts.items()))

    def count(
        self, request: ListSchemas, registry: str, progress: ProgressListener
    ) -> Iterator[PartitionFailed]:
        """Reads the selected partitions, and yields their damage."""
        # Kafka's own topics and the registry's name no schemas.
        others = (*INTERNAL_TOPICS, METADATA_TOPIC, registry)
        topics = {
            topic: numbers
            for topic, numbers in self._engine.topics().items()
            if topic not in others
        }
        partitions = request.selection.partitions(topics)
        for number, key in enumerate(partitions):
            progress.check()
            progress.report("counting records", number, len(partitions))
            try:
                counts, failed = retry_if_gone(partial(self._counts, key))
            except (StorageError, OSError) as error:
                yield PartitionFailed.of(error, "{}-{}".format(*key))
                continue
            yield from failed
            self._add(key[0], counts)

    def _counts(
        self, key: TopicPartition
    ) -> tuple[Counter[tuple[Frame, str]], list[PartitionFailed]]:
        """Returns how many records of a partition have each frame. Raises SegmentGone."""
        counts: Counter[tuple[Frame, str]] = Counter()
        failed: list[PartitionFailed] = []
        view = self._engine.log(*key, keep=False).view()
        for part in view.scan(isolation=Isolation.READ_COMMITTED, ahead=True):
            if isinstance(part, Damage):
                failed.append(PartitionFailed.of(part.error, "{}-{}".format(*key)))
                continue
            for field in ("key", "value"):
                for group in framed_rows(part, is_key=field == "key"):
                    # Only the schema counts, not the Protobuf message.
                    counts[replace(group.frame, in_header=None), field] += len(group.rows)
        return counts, failed

    def _add(self, topic: str, counts: Mapping[tuple[Frame, str], int]) -> None:
        for (frame, field), records in counts.items():
            schema = None
            if frame.schema_id is not None:
                schema = self._source.by_id(frame.schema_id, f"{topic}-{field}")
            elif frame.guid is not None:
                schema = self._source.by_guid(frame.guid)
            if schema is not None:
                self._found[schema][topic, field] += records
