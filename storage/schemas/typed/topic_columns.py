"""The decoded columns of topics, as several reads share them."""

from __future__ import annotations

import threading

from ...errors import SchemaError, fresh
from ...log_dirs.engine import Engine
from ..decoding import Decoders
from .decoder import DecodedColumns
from .record_types import topic_readers


class DecodedTopics:
    """The decoded columns of topics with the schemas of one moment, each found when it is first
    needed. Any thread may use it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()  # guards what follows
        self._number = -1
        self._found: dict[str, DecodedColumns | SchemaError] = {}

    def columns(self, decoders: Decoders, topic: str) -> DecodedColumns | None:
        """Returns the columns of a topic, always the same for the same decoders; None if it has no
        schema. Raises SchemaError if a schema of it cannot be used, and what reading a log
        raises."""
        with self._lock:
            if self._number != decoders.number:
                self._number, self._found = decoders.number, {}
            found = self._found.get(topic)
            if found is None:
                found = self._find(decoders, topic)
                if found is not None:
                    self._found[topic] = found
        if isinstance(found, SchemaError):
            raise fresh(found)
        return found

    def _find(self, decoders: Decoders, topic: str) -> DecodedColumns | SchemaError | None:
        schemas = decoders.schemas
        try:
            readers = topic_readers(self._engine, schemas, topic)
            return DecodedColumns.of_topic(schemas, topic, readers) if readers else None
        except SchemaError as error:
            return error
