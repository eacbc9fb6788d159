"""What decodes in other processes: where schemas are read, in a form that can be sent to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ...log_dirs.engine import Engine
from ...log_dirs.log_dirs import SCHEMAS_CONFIG
from ..catalog import SchemaCatalog, Schemas
from ..decoding import Decoders, TopicDecoder
from ..supplied import SuppliedSchemas
from .decoder import DecodedColumns
from .reader_schema import TopicReaders


@dataclass(frozen=True, slots=True)
class SchemaSourceDirs:
    """The log directories with the schemas that records name, and those given as files, which other
    machines may not have. Versions that are registered later are found, too. Can be pickled."""

    log_dirs: tuple[str, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    at_ms: int | None = None
    supplied: SuppliedSchemas = field(default_factory=SuppliedSchemas)

    def decoded_columns(self, topic: str, readers: TopicReaders) -> DecodedColumns:
        """Returns what decodes a topic's records to these schemas. Raises SchemaError if one of
        them cannot be used, LogDirError or OSError if the directories cannot be read."""
        return DecodedColumns.of_topic(self._schemas(), topic, readers)

    def topic_decoder(self, topic: str) -> TopicDecoder:
        """Returns what decodes a topic's records to JSON. Raises LogDirError or OSError."""
        return Decoders(self._schemas()).for_topic(topic)

    def _schemas(self) -> Schemas:
        configs = tuple(sorted(each for each in self.configs.items() if each[0] != SCHEMAS_CONFIG))
        found = _catalog(self.log_dirs, configs, self.at_ms).schemas()
        return replace(found, supplied=self.supplied)


@lru_cache(maxsize=1)
def _catalog(
    log_dirs: tuple[str, ...], configs: tuple[tuple[str, str], ...], at_ms: int | None
) -> SchemaCatalog:
    """The catalog is kept: reading the registry's topic costs more than a small task."""
    return SchemaCatalog(Engine(log_dirs, dict(configs), at_ms))
