"""A topic's configs as the new node's release accepts them.

A broker refuses to start with a config that it considers invalid, even if an older broker wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ...config.kafka import REMOTE_CONFIGS, TOPIC_CONFIG_NAMES, check_topic_configs
from ...errors import ConfigError
from ...format.files.names import INTERNAL_TOPICS
from .releases import RELEASES, Release

_SIZE: Final = "segment.bytes"
# Since 4.0, segments of less than 1 MiB need this config instead.
_SMALL_SIZE: Final = "internal.segment.bytes"
# What a broker sets when it creates its internal topics.
_COMPACTED: Final = {"cleanup.policy": "compact", _SIZE: "104857600"}
_INTERNAL: Final[Mapping[str, Mapping[str, str]]] = {
    "__consumer_offsets": {**_COMPACTED, "compression.type": "producer"},
    "__transaction_state": {
        **_COMPACTED,
        "compression.type": "uncompressed",
        "unclean.leader.election.enable": "false",
    },
    "__share_group_state": {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "retention.ms": "-1",
        _SIZE: "104857600",
    },
}
_NEWEST: Final = RELEASES[-1]


def configs_for(
    topic: str,
    configs: Mapping[str, str],
    release: Release,
    notes: list[str],
    *,
    reads_tier: bool = False,
) -> dict[str, str]:
    """Returns the configs for the new topic, and adds to `notes` what is lost. An internal topic
    without any gets those that a broker would create it with. `reads_tier`: records in remote
    storage are revived, too."""
    if not configs and topic in INTERNAL_TOPICS:
        return dict(_INTERNAL[topic])
    if configs.get("remote.storage.enable", "").strip().lower() == "true":
        which = (
            "its records are all local now" if reads_tier else "only its local records are revived"
        )
        notes.append(f"topic {topic} was in remote storage: {which}")
    local = {name: text for name, text in configs.items() if name not in REMOTE_CONFIGS}
    if release is not _NEWEST:
        return _for_older(local)
    return dict(_for_newest(topic, local, notes))


def _for_older(configs: Mapping[str, str]) -> dict[str, str]:
    """Returns configs that the release itself wrote, or kafkafs."""
    found = dict(configs)
    small = found.pop(_SMALL_SIZE, None)
    return found if small is None else {**found, _SIZE: small}


def _for_newest(
    topic: str, configs: Mapping[str, str], notes: list[str]
) -> Iterator[tuple[str, str]]:
    for name, text in configs.items():
        if name not in TOPIC_CONFIG_NAMES:
            notes.append(f"the config {name} of {topic} is left out: Kafka {_NEWEST.name} has none")
        elif not (refused := _refusal(name, text)):
            yield name, text
        elif name != _SIZE or _refusal(_SMALL_SIZE, text):
            notes.append(f"a config of {topic} is left out: {refused}")
        elif _SMALL_SIZE not in configs:
            yield _SMALL_SIZE, text


def _refusal(name: str, text: str) -> str:
    """Returns why the newest release refuses a value, "" if it accepts it."""
    try:
        check_topic_configs({name: text})
    except ConfigError as error:
        return str(error)
    return ""
