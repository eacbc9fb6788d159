"""The schemas of a registry, read from its topic as long as they are on the disk.

The state is what a registry would have after reading the topic (KafkaStoreMessageHandler). Besides
it there are versions that were hard-deleted or replaced: records that compaction has not removed
yet, and those in segments that compaction has replaced but that still exist.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from ...errors import (
    CorruptError,
    MissingReference,
    SchemaError,
    StorageError,
    UnknownPartition,
    UnknownSchema,
    UnknownTopic,
)
from ...format.records.columns import Columns, Damage
from ...io.retry import retry_if_gone
from ...log.read.on_disk import PartitionOnDisk
from ...log.read.view import View
from ...log_dirs.engine import Engine
from ..schema import (
    DEFAULT_CONTEXT,
    LATEST,
    Schema,
    SchemaDeletion,
    SubjectVersion,
    context_of,
    qualified,
    qualified_like,
)
from .records import RegistryRecord, SchemaRecord, parse_record
from .state import RegisteredVersion, RegistryState, VersionKey, with_deletion

# The registry reads this partition only (KafkaStoreReaderThread).
_PARTITION: Final = 0
# Errors kept of the topic; one that is all garbage would produce them without end.
_MAX_PROBLEMS: Final = 100
# The most schemas that one may refer to, directly or not, and how deep.
_MAX_REFERENCED: Final = 10_000
_MAX_DEPTH: Final = 200


class RegistryImage:
    """A registry at one moment; a SchemaSource.

    `versions`: all versions on the disk by subject and version, also deleted ones; several with the
    same number if it was used again, the one that counts last. `configs`, `modes`: by subject, ""
    for the global ones. `problems`: damage of the topic and records that were ignored.
    """

    def __init__(
        self, state: RegistryState, problems: Sequence[StorageError], *, with_deleted: bool = False
    ) -> None:
        """`with_deleted`: hard-deleted schemas are found by id and GUID, too, if no other has
        them."""
        self._state = state
        self.problems = problems
        self.configs: Mapping[str, Mapping[str, Any]] = state.configs
        self.modes: Mapping[str, str] = state.modes
        self._with_deleted = with_deleted
        served = {(each.subject, each.version, each.schema) for each in state.versions.values()}
        self._gone = [
            with_deletion(each, SchemaDeletion.HARD)
            for key, each in state.seen.items()
            if key not in served
        ]
        self.versions: Sequence[RegisteredVersion] = sorted(
            (*self._gone, *state.versions.values()),
            key=lambda each: (
                *(each.subject, each.version),
                *(each.deletion is not SchemaDeletion.HARD, each.offset),
            ),
        )
        self._gone_by_id: dict[int, list[RegisteredVersion]] = defaultdict(list)
        for each in sorted(self._gone, key=lambda each: -each.offset):
            if each.schema.id is not None:
                self._gone_by_id[each.schema.id].append(each)
        self._gone_guids = {each.schema.guid for each in self._gone}
        self._by_guid = self._guids()

    def including_deleted(self) -> RegistryImage:
        """Returns the same registry, in which hard-deleted schemas are found by id and GUID."""
        return RegistryImage(self._state, self.problems, with_deleted=True)

    @property
    def subjects(self) -> list[str]:
        """The subjects of all versions on the disk, sorted."""
        return sorted({each.subject for each in self.versions})

    @property
    def compatibility(self) -> dict[str, str]:
        """The compatibility levels by subject, "" for the global one."""
        levels = ((name, each.get("compatibilityLevel")) for name, each in self.configs.items())
        return {name: level for name, level in levels if isinstance(level, str)}

    def _guids(self) -> dict[UUID, Schema]:
        """The schemas by GUID: of those with the same one that of the default context, or else of
        the first context (AbstractSchemaRegistry.getIdUsingContexts)."""
        found: dict[UUID, Schema] = {}
        order = sorted(
            self._state.versions.values(),
            key=lambda each: (each.schema.context != DEFAULT_CONTEXT, each.schema.context),
        )
        for each in (*order, *(self._gone if self._with_deleted else ())):
            if each.schema.guid is not None:
                found.setdefault(each.schema.guid, each.schema)
        return found

    # -- SchemaSource ------------------------------------------------------------------------------

    def by_id(self, schema_id: int, subject: str = "") -> Schema | None:
        found = self._served_by_id(schema_id, subject)
        if found is None and self._with_deleted and self._gone_by_id.get(schema_id):
            gone = self._gone_by_id[schema_id]
            of_subject = [each for each in gone if context_of(each.subject)[1] == subject]
            return (of_subject or gone)[0].schema
        return found

    def _served_by_id(self, schema_id: int, subject: str) -> Schema | None:
        """Returns what AbstractSchemaRegistry.getSchemaKeyUsingContexts finds; if that is nothing,
        the schema of another context if only one has the id: a client may have named its context
        in its URL."""
        ids = self._state.ids
        context, name = context_of(subject)
        contexts = sorted(self._state.contexts - {DEFAULT_CONTEXT})
        if context != DEFAULT_CONTEXT:
            return self._first(ids.get((context, schema_id), {}))
        for each in (DEFAULT_CONTEXT, *contexts):
            own = [key for key in ids.get((each, schema_id), {}) if key[0] == qualified(each, name)]
            if own:
                return self.versions_by_key[own[0]].schema
        found = self._first(ids.get((DEFAULT_CONTEXT, schema_id), {}))
        if found is not None:
            return found
        others = [each for each in contexts if ids.get((each, schema_id))]
        return self._first(ids[others[0], schema_id]) if len(others) == 1 else None

    @property
    def versions_by_key(self) -> Mapping[VersionKey, RegisteredVersion]:
        """The versions that the registry serves, by subject and version."""
        return self._state.versions

    def _first(self, keys: Mapping[VersionKey, None]) -> Schema | None:
        return next((self._state.versions[key].schema for key in keys), None)

    def by_guid(self, guid: UUID) -> Schema | None:
        return self._by_guid.get(guid)

    def subjects_of(self, schema: Schema) -> Sequence[SubjectVersion]:
        if schema.id is None:
            return ()
        keys = self._state.ids.get((schema.context, schema.id), {})
        if keys:
            return sorted(self._state.versions[key].named for key in keys)
        gone = self._gone_by_id.get(schema.id, ())
        return sorted(each.named for each in gone if each.schema.text == schema.text)

    def newest(self, subject: str) -> Schema | None:
        for name in (subject, self._alias(subject)):
            numbers = self._state.subjects.get(name, ())
            found = [self._state.versions[name, number] for number in numbers]
            live = [each for each in found if each.deletion is SchemaDeletion.NONE] or found
            if live:
                return max(live, key=lambda each: each.version).schema
        if not self._with_deleted:
            return None
        gone = [each for each in self._gone if each.subject == subject]
        return max(gone, key=lambda each: (each.version, each.offset)).schema if gone else None

    def _alias(self, subject: str) -> str:
        """Returns the subject that one is an alias of, "" if it is none
        (AbstractSchemaRegistry.replaceAlias)."""
        alias = self.configs.get(subject, {}).get("alias")
        return qualified_like(subject, alias) if isinstance(alias, str) and alias else ""

    def missing(self, schema_id: int | None, guid: UUID | None) -> str:
        what = "id" if schema_id is not None else "GUID"
        why = f"no schema with this {what}"
        # Garbage names a different schema in each record.
        known = self._gone_guids if schema_id is None else self._gone_by_id
        if (guid if schema_id is None else schema_id) not in known:
            return why
        gone = [
            each
            for each in self._gone
            if (each.schema.id == schema_id if schema_id is not None else each.schema.guid == guid)
        ]
        names = ", ".join(f"{each.subject} version {each.version}" for each in gone[:3])
        return f"{why}; it was deleted and is still on the disk ({names})"

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        found: dict[str, Schema] = {}
        self._add_referenced(schema, found, [])
        return found

    def _add_referenced(self, schema: Schema, found: dict[str, Schema], path: list[str]) -> None:
        """Adds what a schema refers to, depth first, as AbstractSchemaProvider.resolveReferences
        does. `path`: the names of the references that lead to it."""
        if len(path) > _MAX_DEPTH:
            raise SchemaError(schema.name, f"more than {_MAX_DEPTH} references refer to each other")
        for each in schema.references:
            if each.name in path:
                cycle = " → ".join([*path[path.index(each.name) :], each.name])
                raise SchemaError(schema.name, f"its references form a cycle: {cycle}")
            if each.name in found:
                continue
            if len(found) >= _MAX_REFERENCED:
                raise SchemaError(schema.name, f"it has more than {_MAX_REFERENCED} references")
            subject = qualified_like(qualified(schema.context, ""), each.subject)
            other = self._version(subject, each.version)
            if other is None:
                version = "latest" if each.version == LATEST else each.version
                why = f"{subject} version {version}, to which it refers as {each.name}, is missing"
                raise MissingReference(schema.name, why)
            path.append(each.name)
            self._add_referenced(other, found, path)
            path.pop()
            found[each.name] = other

    def _version(self, subject: str, version: int) -> Schema | None:
        """Returns a version of a subject, also of a deleted one."""
        if version == LATEST:
            return self.newest(subject)
        for name in (subject, self._alias(subject)):
            served = self._state.versions.get((name, version))
            if served is not None:
                return served.schema
        gone = (each for each in self._gone if (each.subject, each.version) == (subject, version))
        last = max(gone, key=lambda each: each.offset, default=None)
        return last.schema if last is not None and self._with_deleted else None

    def of_subject(self, subject: str) -> list[RegisteredVersion]:
        """Returns the versions of a subject on the disk. Raises UnknownSchema."""
        found = [each for each in self.versions if each.subject == subject]
        if not found:
            raise UnknownSchema(subject, self.subjects)
        return found

    def schemas(self) -> dict[tuple[str, int], RegisteredVersion]:
        """Returns a version for each id on the disk, by context and id: one that the registry
        serves, or else the hard-deleted one with the highest offset."""
        found: dict[tuple[str, int], RegisteredVersion] = {}
        order = (*self._state.versions.values(), *sorted(self._gone, key=lambda e: -e.offset))
        for each in order:
            if each.schema.id is not None:
                found.setdefault((each.schema.context, each.schema.id), each)
        return dict(sorted(found.items()))


#: A registry without schemas.
def empty_image() -> RegistryImage:
    return RegistryImage(RegistryState(), ())


def read_registry(engine: Engine, topic: str) -> RegistryImage:
    """Reads the registry's topic. An engine without it has no schemas. Raises OSError or
    LogDirError as reading does; damage is in `problems`."""
    try:
        log = engine.log(topic, _PARTITION)
        copies = engine.copies_of(topic, _PARTITION)
        replicas = [each.directory for each in copies if each.path != log.path]
        return retry_if_gone(lambda: _read(PartitionOnDisk(log, replicas, engine.at_ms)))
    except (UnknownTopic, UnknownPartition):
        return empty_image()


def _read(disk: PartitionOnDisk) -> RegistryImage:
    """Reads all files: the served records change the state in order of their offsets, the others
    only add schemas. Raises SegmentGone."""
    state, problems = RegistryState(), _Problems()
    served = [file for file in disk.files if file.is_served]
    for file in (*served, *(file for file in disk.files if not file.is_served)):
        for part in disk.scan(file):
            if isinstance(part, Damage):
                problems.add(part.error)
            else:
                _apply(state, part, disk.view if file.is_served else None, problems)
    return RegistryImage(state, problems.finish())


class _Problems:
    """The first problems, each once: compaction leaves a damaged record in several files."""

    def __init__(self) -> None:
        self._found: dict[str, StorageError] = {}
        self._more = 0

    def add(self, error: StorageError) -> None:
        if len(self._found) < _MAX_PROBLEMS:
            self._found[str(error)] = error
        else:
            self._more += 1

    def finish(self) -> list[StorageError]:
        found = list(self._found.values())
        more = [CorruptError(f"{self._more} more records cannot be read")] if self._more else []
        return [*found, *more]


def _apply(state: RegistryState, part: Columns, view: View | None, problems: _Problems) -> None:
    """Applies records; without a view, which says what is served, only their schemas are kept."""
    for row, (record, error) in enumerate(_parsed(part)):
        offset = int(part.offsets[row])
        why = "" if error is None else error.what
        found = None
        if isinstance(record, SchemaRecord) and record.schema is not None:
            found = _registered(record, record.schema, part, row)
            known = state.seen.get((found.subject, found.version, found.schema))
            if known is None or known.offset <= offset:
                state.seen[found.subject, found.version, found.schema] = found
        if view is not None and view.start_offset <= offset < view.end_offset:
            why = why or state.apply(record, found)
        if why:
            position = part.batch_of(row).position
            problems.add(CorruptError(f"offset {offset}: {why}", part.file, position))


def _parsed(part: Columns) -> Iterator[tuple[RegistryRecord | None, CorruptError | None]]:
    control = part.batches
    for row in range(len(part)):
        if control[int(part.first_row.searchsorted(row, side="right")) - 1].is_control:
            yield None, None
            continue
        try:
            yield parse_record(part.key(row), part.value(row)), None
        except CorruptError as error:
            yield None, error


def _registered(record: SchemaRecord, schema: Schema, part: Columns, row: int) -> RegisteredVersion:
    return RegisteredVersion(
        record.subject,
        record.version,
        schema,
        SchemaDeletion.SOFT if record.is_deleted else SchemaDeletion.NONE,
        int(part.offsets[row]),
        int(part.timestamps[row]),
        part.file,
        record.metadata,
        record.rule_set,
    )


class RegistryReader:
    """The registry of an engine, read again only when its topic has changed. Any thread may use
    it."""

    def __init__(self, engine: Engine, topic: str) -> None:
        self._engine = engine
        self._topic = topic
        self._lock = threading.Lock()  # guards what follows
        self._view: View | None = None
        self._image: RegistryImage | None = None

    def image(self) -> RegistryImage:
        """Returns the registry as of now; the same object if nothing changed. Raises LogDirError or
        OSError if the directories cannot be read."""
        with self._lock:
            view = self._current_view()
            if self._image is None or view is not self._view:
                self._image = read_registry(self._engine, self._topic)
                self._view = view
            return self._image

    def _current_view(self) -> View | None:
        try:
            return retry_if_gone(lambda: self._engine.log(self._topic, _PARTITION).view())
        except (UnknownTopic, UnknownPartition):
            return None
