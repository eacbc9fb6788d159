"""The releases of Kafka that a directory can be made for, and their features.

A broker reads what older ones wrote, but not the other way round: newer ones write newer versions
of the records in internal topics. The level of metadata.version tells releases apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ...errors import ConfigError, LogDirError

METADATA_VERSION: Final = "metadata.version"


@dataclass(frozen=True, slots=True)
class Release:
    """A release. `features`: the level of each feature that a new cluster starts with; the first
    one is metadata.version."""

    name: str
    features: Mapping[str, int]

    @property
    def level(self) -> int:
        """The highest level of metadata.version."""
        return self.features[METADATA_VERSION]


#: Oldest first.
RELEASES: Final = (
    Release("3.9", {METADATA_VERSION: 21}),
    Release(
        "4.3",
        {
            METADATA_VERSION: 30,
            "eligible.leader.replicas.version": 1,
            "group.version": 1,
            "share.version": 1,
            "streams.version": 1,
            "transaction.version": 2,
        },
    ),
)


def find_release(text: str) -> Release:
    """Returns the release of a version such as 4.3 or 4.3.0. Raises ConfigError."""
    for release in RELEASES:
        if text == release.name or text.startswith(f"{release.name}."):
            return release
    names = " or ".join(release.name for release in RELEASES)
    raise ConfigError("kafka-version", f"must be {names} (got {text!r})")


def release_for(features: Mapping[str, int], wanted: str | None, path: str) -> Release:
    """Returns the wanted release or, by default, the oldest one that reads what a cluster with
    these features wrote; the newest one if they are unknown. Raises ConfigError for an unknown
    release, LogDirError for one older than the cluster, whose metadata are in `path`."""
    level = features.get(METADATA_VERSION, 0)
    fitting = [release for release in RELEASES if release.level >= level]
    if not fitting:
        newest = RELEASES[-1]
        why = f"metadata.version is {level}, newer than that of Kafka {newest.name}, {newest.level}"
        raise LogDirError(path, why)
    if wanted is None:
        return fitting[0] if level else RELEASES[-1]
    release = find_release(wanted)
    if release not in fitting:
        why = f"metadata.version is {level}, which Kafka {release.name} cannot read"
        raise LogDirError(path, f"{why}; choose --kafka-version {fitting[0].name}")
    return release


def features_for(features: Mapping[str, int], release: Release) -> dict[str, int]:
    """Returns the levels for the new cluster: those of the old one if it was of the same release,
    else those that a new cluster starts with."""
    if features.get(METADATA_VERSION) != release.level:
        return dict(release.features)
    return {name: features[name] for name in release.features if features.get(name)}
