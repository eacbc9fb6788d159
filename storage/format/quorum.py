"""What a KRaft quorum writes into its log beside records: control records, as kafka-dump-log prints
them.

Fields are those of Kafka's `LeaderChangeMessage`, `SnapshotHeaderRecord`, `SnapshotFooterRecord`,
`KRaftVersionRecord` and `VotersRecord`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from ..errors import CorruptError
from .fields import Fields
from .layout import ControlType

Message = dict[str, Any]


def quorum_message(number: int, value: bytes) -> str:
    """A control record of this type number, with this value."""
    if number not in _MESSAGES:
        known = {int(each): each.name for each in ControlType}
        return f"controlType: {known.get(number, 'UNKNOWN')}({number})"
    name, read = _MESSAGES[number]
    fields = Fields(value)
    try:
        version = fields.int16()
        message = {"version": version, **read(fields, version)}
    except CorruptError as error:
        return f"{name} (damaged: {error.what})"
    return f"{name} {json.dumps(message, separators=(',', ':'))}"


def _leader_change(fields: Fields, version: int) -> Message:
    def voter() -> Message:
        message: Message = {"voterId": fields.int32()}
        if version > 0:
            message["voterDirectoryId"] = fields.uuid()
        fields.skip_tags()
        return message

    return {
        "leaderId": fields.int32(),
        "voters": fields.array(voter),
        "grantingVoters": fields.array(voter),
    }


def _voters(fields: Fields, version: int) -> Message:
    def endpoint() -> Message:
        message = {"name": fields.string(), "host": fields.string(), "port": fields.uint16()}
        fields.skip_tags()
        return message

    def feature() -> Message:
        message = {
            "minSupportedVersion": fields.int16(),
            "maxSupportedVersion": fields.int16(),
        }
        fields.skip_tags()
        return message

    def voter() -> Message:
        message = {
            "voterId": fields.int32(),
            "voterDirectoryId": fields.uuid(),
            "endpoints": fields.array(endpoint),
            "kRaftVersionFeature": feature(),
        }
        fields.skip_tags()
        return message

    return {"voters": fields.array(voter)}


def _snapshot_header(fields: Fields, version: int) -> Message:
    return {"lastContainedLogTimestamp": fields.int64()}


def _snapshot_footer(fields: Fields, version: int) -> Message:
    return {}


def _kraft_version(fields: Fields, version: int) -> Message:
    return {"kRaftVersion": fields.int16()}


# By the type's number: how the tool calls it, and what follows its version.
_MESSAGES: Final[dict[int, tuple[str, Callable[[Fields, int], Message]]]] = {
    ControlType.LEADER_CHANGE: ("LeaderChange:", _leader_change),
    ControlType.SNAPSHOT_HEADER: ("SnapshotHeader", _snapshot_header),
    ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter", _snapshot_footer),
    ControlType.KRAFT_VERSION: ("KRaftVersion", _kraft_version),
    ControlType.KRAFT_VOTERS: ("KRaftVoters", _voters),
}
