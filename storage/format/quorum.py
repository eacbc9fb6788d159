"""What a KRaft quorum writes into its log beside records: control records, as kafka-dump-log prints
them.
"""

from __future__ import annotations

from typing import Final

from ..errors import CorruptError
from .fields import Fields
from .layout import ControlType
from .messages import Schema, parse_schemas, to_json
from .schemas import raft


def quorum_message(number: int, value: bytes) -> str:
    """A control record of this type number, with this value."""
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
# By the type's number: how the tool calls it, and what it is.
_MESSAGES: Final[dict[int, tuple[str, Schema]]] = {
    ControlType.LEADER_CHANGE: ("LeaderChange:", _SCHEMAS["LeaderChangeMessage"]),
    ControlType.SNAPSHOT_HEADER: ("SnapshotHeader", _SCHEMAS["SnapshotHeaderRecord"]),
    ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter", _SCHEMAS["SnapshotFooterRecord"]),
    ControlType.KRAFT_VERSION: ("KRaftVersion", _SCHEMAS["KRaftVersionRecord"]),
    ControlType.KRAFT_VOTERS: ("KRaftVoters", _SCHEMAS["VotersRecord"]),
}
