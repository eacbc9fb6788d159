"""The cluster of `LogDirectories.cluster`: its state as the metadata log records it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kafkafs.storage import (
    ClusterChange,
    ClusterState,
    ClusterSubject,
    Engine,
    ListClusterChanges,
    PartitionFailed,
    StorageError,
    cluster_state,
    list_cluster_changes,
)


class Cluster:
    """The cluster after the records below `offset` of the metadata log, the last of which is of
    `timestamp` (ms since 1970, -1 for none). `problems`: what could not be read, a line each.

    Everything is as in the JSON of `kafkafs cluster`: a list of dictionaries for each subject. The
    salts and keys of users are never read, and passwords in configs are hidden.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def __repr__(self) -> str:
        return f"<Cluster {self.cluster_id} after offset {self.offset - 1}>"

    @property
    def cluster_id(self) -> str:
        """The id in meta.properties, "" if unknown."""
        return self._state.cluster_id

    @property
    def offset(self) -> int:
        return self._state.image.offset

    @property
    def timestamp(self) -> int:
        return self._state.image.timestamp

    @property
    def problems(self) -> list[str]:
        return list(self._state.image.problems)

    @property
    def summary(self) -> dict[str, Any]:
        """The cluster in numbers."""
        return self._rows(ClusterSubject.SUMMARY)[0]

    @property
    def topics(self) -> list[dict[str, Any]]:
        """The topics with ids, configs, and for each partition leader, replicas and ISR."""
        return self._rows(ClusterSubject.TOPICS)

    @property
    def brokers(self) -> list[dict[str, Any]]:
        """The nodes, as brokers and as controllers, with endpoints and state."""
        return self._rows(ClusterSubject.BROKERS)

    @property
    def configs(self) -> list[dict[str, Any]]:
        """The configs of topics, brokers, groups and client metrics."""
        return self._rows(ClusterSubject.CONFIGS)

    @property
    def quotas(self) -> list[dict[str, Any]]:
        """The client quotas; None is the default entity."""
        return self._rows(ClusterSubject.QUOTAS)

    @property
    def acls(self) -> list[dict[str, Any]]:
        return self._rows(ClusterSubject.ACLS)

    @property
    def users(self) -> list[dict[str, Any]]:
        """The users with SCRAM credentials, and the delegation tokens."""
        return self._rows(ClusterSubject.USERS)

    @property
    def features(self) -> list[dict[str, Any]]:
        """The finalized and supported levels of features."""
        return self._rows(ClusterSubject.FEATURES)

    @property
    def voters(self) -> list[dict[str, Any]]:
        """The voters of the metadata quorum."""
        return self._rows(ClusterSubject.VOTERS)

    def _rows(self, subject: ClusterSubject) -> list[dict[str, Any]]:
        return [row.as_json() for row in self._state.rows(subject)]


def cluster_of(engine: Engine, offset: int | None) -> Cluster:
    """Does the work of `LogDirectories.cluster`."""
    return Cluster(cluster_state(engine, offset))


def changes_of(engine: Engine, on_problem: Callable[[str], None] | None) -> Iterator[ClusterChange]:
    """Does the work of `LogDirectories.cluster_changes`."""
    for row in list_cluster_changes(engine, ListClusterChanges()):
        if not isinstance(row, PartitionFailed):
            yield row
        elif on_problem is None:
            raise StorageError(row.error)
        else:
            on_problem(row.error)
