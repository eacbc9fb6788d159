"""Formats the control records of a KRaft quorum's log as kafka-dump-log does."""

from __future__ import annotations

from typing import Final

from ...errors import CorruptError
from ..layout import ControlType
from .fields import Fields
from .message import Schema, parse_schemas, to_json
from .schemas import raft


def quorum_message(number: int, value: bytes) -> str:
    """Formats a control record, given its type number and value."""
    if number not in _MESSAGES:
        known = {int(each): each.name for each in ControlType}
        return f"controlType: {known.get(number, 'UNKNOWN')}({number})"
    name, schema = _MESSAGES[number]
    try:
        message = schema.read(value, Fields(value).int16())
    except CorruptError as error:
        return f"{name} (damaged: {error.what})"
    return f"{name} {to_json(message)}"


_SCHEMAS: Final = {schema.name: schema for schema in parse_schemas(raft.SCHEMAS)}
# Control type to the name that kafka-dump-log prints and the schema of the value.
_MESSAGES: Final[dict[int, tuple[str, Schema]]] = {
    ControlType.LEADER_CHANGE: ("LeaderChange:", _SCHEMAS["LeaderChangeMessage"]),
    ControlType.SNAPSHOT_HEADER: ("SnapshotHeader", _SCHEMAS["SnapshotHeaderRecord"]),
    ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter", _SCHEMAS["SnapshotFooterRecord"]),
    ControlType.KRAFT_VERSION: ("KRaftVersion", _SCHEMAS["KRaftVersionRecord"]),
    ControlType.KRAFT_VOTERS: ("KRaftVoters", _SCHEMAS["VotersRecord"]),
}
