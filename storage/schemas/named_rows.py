"""The keys or values of a topic, by the schema that they name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..format.files.names import INTERNAL_TOPICS, METADATA_TOPIC
from ..format.records.batch import Int64s
from ..format.records.columns import KEY_SIZE, VALUE_SIZE, Columns
from .catalog import Schemas
from .framed_columns import FramedRows, framed_rows
from .framing import APICURIO_SIZE, UNFRAMED, Frame, Framing, frame_of_prefix
from .schema import Schema

#: Kafka's own topics, whose keys and values name no schemas.
WITHOUT_SCHEMAS: Final = frozenset((*INTERNAL_TOPICS, METADATA_TOPIC))


@dataclass(frozen=True, slots=True)
class NamedRows:
    """Rows (int64, ascending) whose keys or values have the same frame and schema.

    Without a schema, `why` says what is wrong with the frame; "" if they name none. `is_unsure`:
    either the schema is meant by the frame, or a datum without a frame begins like one.
    """

    frame: Frame
    rows: Int64s
    schema: Schema | None = None
    why: str = ""
    is_unsure: bool = False


def named_rows(
    schemas: Schemas, topic: str, columns: Columns, *, is_key: bool, for_topic: Schema | None = None
) -> Iterator[NamedRows]:
    """Yields all rows whose key or value is not null, each once. `for_topic`: the schema of those
    that name none, or one that is not there, unless one was given for the topic."""
    given = schemas.of_topic(topic, is_key=is_key)
    framing = None if given is None else given.framing
    if given is not None and given.schema is not None:
        for_topic = given.schema
    has_none = framing is Framing.NONE or (given is None and topic in WITHOUT_SCHEMAS)
    for group in _framed(columns, framing, has_none=has_none, is_key=is_key):
        frame, rows = group.frame, group.rows
        if frame.fault:
            yield NamedRows(frame, rows, None, frame.fault)
            continue
        found = _schema(schemas, frame, topic, is_key=is_key)
        if found is not None:
            yield NamedRows(frame, rows, found)
        elif for_topic is not None:
            is_unsure = framing is None and frame != UNFRAMED
            yield NamedRows(frame, rows, for_topic, is_unsure=is_unsure)
        elif _names_nothing(frame):
            yield NamedRows(UNFRAMED, rows)
        else:
            yield NamedRows(frame, rows, None, schemas.missing(frame.schema_id, frame.guid))


def _schema(schemas: Schemas, frame: Frame, topic: str, *, is_key: bool) -> Schema | None:
    """Returns the schema that a frame names, None if it is not there."""
    if frame.schema_id is not None:
        return schemas.by_id(frame.schema_id, subject_of(topic, is_key=is_key))
    return None if frame.guid is None else schemas.by_guid(frame.guid)


def subject_of(topic: str, *, is_key: bool) -> str:
    """Returns the subject of a topic's keys or values (TopicNameStrategy)."""
    return f"{topic}-{'key' if is_key else 'value'}"


def _names_nothing(frame: Frame) -> bool:
    """Returns whether a value is taken for one without a frame: registries count ids from 1, so
    that a zero one is a number, such as a long in 8 bytes."""
    return frame == UNFRAMED or (frame.framing is Framing.PREFIX and frame.schema_id == 0)


def _framed(
    columns: Columns, framing: Framing | None, *, has_none: bool, is_key: bool
) -> list[FramedRows]:
    """Returns the rows with the framing that was given for the topic. Others have a fault."""
    if has_none:
        rows = np.flatnonzero(columns.spans[:, KEY_SIZE if is_key else VALUE_SIZE] >= 0)
        return [FramedRows(UNFRAMED, rows)] if len(rows) else []
    found = framed_rows(columns, is_key=is_key)
    if framing is None:
        return found
    groups = [group for group in found if group.frame.framing is framing]
    for group in found:
        if group.frame.framing is not framing:
            groups += _reframed(columns, group, framing, is_key=is_key)
    return groups


def _reframed(
    columns: Columns, group: FramedRows, framing: Framing, *, is_key: bool
) -> Iterator[FramedRows]:
    """Yields rows that seem to have another framing than the given one."""
    value = columns.key if is_key else columns.value
    for row in group.rows:
        data = value(int(row)) or b""
        found = frame_of_prefix(data)
        if framing is Framing.APICURIO and len(data) >= APICURIO_SIZE and data[0] == 0:
            number = int.from_bytes(data[1:APICURIO_SIZE], "big")
            found = Frame(framing, number, start=APICURIO_SIZE)
        elif found.framing is not framing:
            found = Frame(framing, fault=f"it has no frame of the kind {framing}")
        yield FramedRows(found, np.array([row], dtype=np.int64))
