"""All schemas that an engine's records may name: those given as files, and those of the registry in
its directories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

from ..config.kafka import reader_config
from ..log_dirs.engine import Engine
from .registry.image import RegistryImage, RegistryReader
from .schema import Schema, SubjectVersion
from .supplied import SuppliedSchemas, TopicSchema, parse_supplied


@dataclass(frozen=True, slots=True)
class Schemas:
    """Schemas at one moment; a SchemaSource. Those given as files take precedence."""

    supplied: SuppliedSchemas
    registry: RegistryImage

    def of_topic(self, topic: str, *, is_key: bool) -> TopicSchema | None:
        """Returns what was given for a topic's keys or values, None if nothing was."""
        return self.supplied.of_topic(topic, is_key=is_key)

    def by_id(self, schema_id: int, subject: str = "") -> Schema | None:
        return self.supplied.ids.get(schema_id) or self.registry.by_id(schema_id, subject)

    def by_guid(self, guid: UUID) -> Schema | None:
        return self.supplied.guids.get(guid) or self.registry.by_guid(guid)

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        source = self.supplied if schema.id is None else self.registry
        return source.referenced(schema)

    def subjects_of(self, schema: Schema) -> Sequence[SubjectVersion]:
        return self.registry.subjects_of(schema)

    def newest(self, subject: str) -> Schema | None:
        return self.registry.newest(subject)

    def missing(self, schema_id: int | None, guid: UUID | None) -> str:
        return self.registry.missing(schema_id, guid)


class SchemaCatalog:
    """The schemas of an engine, read when they are first needed, and the registry again when its
    topic has changed. Any thread may use it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._config = reader_config(engine.configs)
        self._reader = RegistryReader(engine, self._config.kafkafs_schemas_topic)
        self._last: tuple[RegistryImage, Schemas] | None = None

    @property
    def reader(self) -> RegistryReader:
        """The registry in the directories."""
        return self._reader

    @cached_property
    def _supplied(self) -> SuppliedSchemas:
        return parse_supplied(self._config.kafkafs_schemas or "")

    def schemas(self) -> Schemas:
        """Returns the schemas as of now; the same object if nothing changed. Raises ConfigError or
        SchemaError if those given as files cannot be used, LogDirError or OSError if files cannot
        be read."""
        image, last = self._reader.image(), self._last
        if last is None or last[0] is not image:
            deleted = self._config.kafkafs_schemas_deleted
            registry = image.including_deleted() if deleted else image
            last = self._last = image, Schemas(self._supplied, registry)
        return last[1]
