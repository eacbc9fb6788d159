"""Parses and formats `quorum-state`, a node's own note of the metadata quorum (QuorumStateData).

Beside the metadata log, a node stores the last epoch that it knows, and who leads or got its vote
in it. Version 0 has the voters, which are static; in version 1 (KIP-853), only the log has them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from ...errors import CorruptError

QUORUM_STATE_VERSIONS: Final = (0, 1)

_MAX_INT32: Final = 2**31 - 1
_NO_DIRECTORY: Final = "AAAAAAAAAAAAAAAAAAAAAA"  # ReplicaKey.NO_DIRECTORY_ID


@dataclass(frozen=True, slots=True)
class QuorumState:
    """The quorum as a node knows it. `leader_id`: -1 if it knows none of this epoch; `voters`: ids
    in file order, () in version 1."""

    leader_id: int
    leader_epoch: int
    voters: tuple[int, ...] = ()


def parse_quorum_state(data: bytes) -> QuorumState:
    """Parses the file's first line, as Kafka does. Raises CorruptError for anything that Kafka
    would reject."""
    found, version = _object(data)
    voters = found.get("currentVoters") if version == 0 else None
    if voters is not None and not isinstance(voters, list):
        raise CorruptError("currentVoters is not an array", position=0)
    return QuorumState(
        _number(found, "leaderId", -1),
        _number(found, "leaderEpoch", -1),
        tuple(_number(each, "voterId", 0) for each in voters or ()),
    )


def format_leader(data: bytes, leader_id: int, leader_epoch: int) -> bytes:
    """Returns the content of the file after the node was elected in an epoch: `data`, in the same
    version, with this leader and without a vote, as Kafka writes it then (ElectionState,
    FileQuorumStateStore). Raises CorruptError as `parse_quorum_state` does."""
    found, version = _object(data)
    found |= {"leaderId": leader_id, "leaderEpoch": leader_epoch, "votedId": -1}
    if version > 0:
        found["votedDirectoryId"] = _NO_DIRECTORY
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()


def _object(data: bytes) -> tuple[dict[str, Any], int]:
    """Returns the file's JSON object and its version."""
    try:
        found = json.loads(data.partition(b"\n")[0])
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"invalid JSON: {error}", position=0) from None
    if not isinstance(found, dict):
        raise CorruptError("expected a JSON object", position=0)
    version = found.get("data_version")
    if type(version) is not int or version not in QUORUM_STATE_VERSIONS:
        raise CorruptError(f"data_version is {_shown(version)}, expected 0 or 1", position=0)
    return found, version


def _number(found: Any, name: str, low: int) -> int:
    """Returns a field's number. Raises CorruptError unless it is an int32 from `low` on."""
    value = found.get(name) if isinstance(found, dict) else None
    if type(value) is not int or not low <= value <= _MAX_INT32:
        what = f"{name} is {_shown(value)}, expected a number from {low} to {_MAX_INT32}"
        raise CorruptError(what, position=0)
    return value


def _shown(value: Any) -> str:
    """Returns the beginning of a value as JSON."""
    return "missing" if value is None else json.dumps(value)[:40]
