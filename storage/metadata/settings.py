"""What clients set in a cluster, as records that another cluster can be given: configs, quotas,
ACLs, SCRAM credentials and delegation tokens.

An image of the cluster is for people and has no secrets. Here, the records are kept as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from ..format.messages.message import Message
from ..format.messages.metadata import RecordType, ResourceType
from .replay import MetadataReplay, quota_entity

_Key = tuple[Any, ...]

# What identifies the thing that a record sets, and the record that removes it, if that is another.
_SETS: Final[Mapping[int, tuple[str, ...]]] = {
    RecordType.CONFIG: ("resourceType", "resourceName", "name"),
    RecordType.ACCESS_CONTROL_ENTRY: ("id",),
    RecordType.USER_SCRAM_CREDENTIAL: ("name", "mechanism"),
    RecordType.DELEGATION_TOKEN: ("tokenId",),
}
_REMOVES: Final[Mapping[int, RecordType]] = {
    RecordType.REMOVE_ACCESS_CONTROL_ENTRY: RecordType.ACCESS_CONTROL_ENTRY,
    RecordType.REMOVE_USER_SCRAM_CREDENTIAL: RecordType.USER_SCRAM_CREDENTIAL,
    RecordType.REMOVE_DELEGATION_TOKEN: RecordType.DELEGATION_TOKEN,
}


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The records that set something which was not removed later, by RecordType, in the order in
    which they were first set. Those of a type are `MessageSchema.read`'s messages."""

    records: Mapping[int, Sequence[Message]] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, number: RecordType) -> Sequence[Message]:
        return self.records.get(number, ())


class SettingsReplay(MetadataReplay):
    """A replay that also keeps the records of what clients set."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[int, dict[_Key, Message]] = {}

    def settings(self) -> ClusterSettings:
        """Returns the records that still count."""
        return ClusterSettings({kind: list(kept.values()) for kind, kept in self._kept.items()})

    def _apply(self, number: int, data: Message) -> None:
        if number == RecordType.REMOVE_TOPIC:
            self._forget_configs(self.topic_name(data["topicId"]))
        super()._apply(number, data)
        kind = _REMOVES.get(number, number)
        if kind == RecordType.CLIENT_QUOTA:
            key: _Key = (quota_entity(data), data["key"])
        elif kind in _SETS:
            key = tuple(data[name] for name in _SETS[kind])
        else:
            return
        kept = self._kept.setdefault(kind, {})
        if kind != number or data.get("remove") or data.get("value", key) is None:
            kept.pop(key, None)
        else:
            kept[key] = data

    def _forget_configs(self, topic: str) -> None:
        kept = self._kept.get(RecordType.CONFIG, {})
        for key in [key for key in kept if key[:2] == (ResourceType.TOPIC, topic)]:
            del kept[key]
