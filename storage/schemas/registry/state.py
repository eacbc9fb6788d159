"""The state of a registry, as its records change it (KafkaStoreMessageHandler, InMemoryCache)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..schema import Schema, SchemaDeletion, SubjectVersion, context_of
from .records import (
    ClearSubjectRecord,
    ConfigRecord,
    ContextRecord,
    DeleteSubjectRecord,
    ModeRecord,
    RegistryRecord,
    SchemaRecord,
)


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """A version of a subject, from the record at `offset` with `timestamp` (ms since 1970, -1 for
    none) in `file`. `metadata`, `rule_set`: as in SchemaRecord."""

    subject: str
    version: int
    schema: Schema
    deletion: SchemaDeletion
    offset: int
    timestamp: int
    file: str
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None

    @property
    def named(self) -> SubjectVersion:
        return SubjectVersion(self.subject, self.version, self.deletion)

    def as_json(self) -> dict[str, Any]:
        """Returns the version with the registry's names, `deleted` as in SchemaDeletion."""
        schema = self.schema
        row: dict[str, Any] = {
            "subject": self.subject,
            "version": self.version,
            "id": schema.id,
            "guid": str(schema.guid),
            "schemaType": str(schema.type),
            "references": [each.as_json() for each in schema.references],
            "deleted": str(self.deletion),
            "schema": schema.text,
        }
        if self.metadata is not None:
            row["metadata"] = self.metadata
        if self.rule_set is not None:
            row["ruleSet"] = self.rule_set
        return {**row, "offset": self.offset, "timestamp": self.timestamp, "file": self.file}


VersionKey = tuple[str, int]


@dataclass(slots=True)
class RegistryState:
    """The state of a registry. `versions`: those that it serves. `ids`: the versions with an id in
    a context. `seen`: every schema on the disk, also those that the state no longer has, as the
    last record had it."""

    versions: dict[VersionKey, RegisteredVersion] = field(default_factory=dict)
    # The numbers of the versions of each subject, in the order in which they were registered.
    subjects: defaultdict[str, dict[int, None]] = field(default_factory=lambda: defaultdict(dict))
    ids: defaultdict[tuple[str, int], dict[VersionKey, None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    seen: dict[tuple[str, int, Schema], RegisteredVersion] = field(default_factory=dict)
    configs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    contexts: set[str] = field(default_factory=set)

    def apply(self, record: RegistryRecord | None, found: RegisteredVersion | None) -> str:
        """Applies a record, of which `found` is the version if it has a schema. Returns why the
        registry would ignore it, "" if it would not."""
        if isinstance(record, SchemaRecord):
            return self._schema(record, found)
        if isinstance(record, DeleteSubjectRecord):
            self._delete(record)
        elif isinstance(record, ClearSubjectRecord):
            self._clear(record.subject)
        elif isinstance(record, ConfigRecord):
            self._set(self.configs, record.subject, record.config)
        elif isinstance(record, ModeRecord):
            self._set(self.modes, record.subject, record.mode)
        elif isinstance(record, ContextRecord):
            self.contexts.add(record.context)
        return ""

    @staticmethod
    def _set(values: dict[str, Any], subject: str, value: Any) -> None:
        if value is None:
            values.pop(subject, None)
        else:
            values[subject] = value

    def _schema(self, record: SchemaRecord, found: RegisteredVersion | None) -> str:
        key = (record.subject, record.version)
        if found is None:
            self._remove(key)
            return ""
        schema = found.schema
        assert schema.id is not None
        others = self.ids[schema.context, schema.id]
        other = self.versions.get(next(iter(others), ("", 0)))
        if other is not None and other.schema.text != schema.text:
            return (
                f"id {schema.id} has two texts, of {other.subject} version {other.version} and of"
                f" {found.subject} version {found.version}; the registry uses the first"
            )
        self._remove(key)
        self.versions[key] = found
        self.subjects[key[0]][key[1]] = None
        others[key] = None
        self.contexts.add(schema.context)
        return ""

    def _remove(self, key: VersionKey) -> None:
        old = self.versions.pop(key, None)
        if old is not None and old.schema.id is not None:
            self.ids[old.schema.context, old.schema.id].pop(key, None)
            self.subjects[key[0]].pop(key[1], None)

    def _delete(self, record: DeleteSubjectRecord) -> None:
        for version in self.subjects[record.subject]:
            if version <= record.version:
                key = (record.subject, version)
                self.versions[key] = with_deletion(self.versions[key], SchemaDeletion.SOFT)

    def _clear(self, subject: str) -> None:
        """Removes softly deleted versions (InMemoryCache.clearSubjects)."""
        context, name = context_of(subject)
        for key, found in list(self.versions.items()):
            is_meant = key[0] == subject or (not name and found.schema.context == context)
            if is_meant and found.deletion is SchemaDeletion.SOFT:
                self._remove(key)


def with_deletion(found: RegisteredVersion, deletion: SchemaDeletion) -> RegisteredVersion:
    """Returns the same version with another deletion."""
    return replace(found, deletion=deletion)
