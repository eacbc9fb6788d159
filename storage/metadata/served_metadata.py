"""The cluster's metadata in the `__cluster_metadata-0` that is served. That may change to another
directory: another replica may be elected, or a broker may make the directory again."""

from __future__ import annotations

from typing import Protocol

from ..format.files.names import METADATA_TOPIC
from ..io.directory import Directory
from ..log.read.context import ReadContext
from ..log.read.log import Log
from .cluster_metadata import ClusterMetadata


class MetadataDir(Protocol):
    """A directory of `__cluster_metadata-0`; equal to itself as long as it is not made again."""

    @property
    def directory(self) -> Directory: ...
    def log_start_offset(self) -> int: ...


class ServedMetadata:
    """Reads the metadata, as they are now or as of `at_ms` (ms since 1970)."""

    def __init__(self, context: ReadContext, at_ms: int | None = None) -> None:
        self._context = context
        self._at_ms = at_ms
        # Replaced as a whole, so that any thread may read it.
        self._known: tuple[MetadataDir, Log, ClusterMetadata] | None = None

    def of(self, found: MetadataDir) -> ClusterMetadata:
        """Returns the reader of a directory, the same one until another directory is given."""
        known = self._known
        if known is None or known[0] != found:
            context, at_ms = self._context, self._at_ms
            place = found.directory, METADATA_TOPIC, 0, found.log_start_offset
            log = shown = Log(*place, context)
            if at_ms is not None:
                shown = Log(*place, context, at_ms)
            known = self._known = found, log, ClusterMetadata(shown, context, at_ms, log)
        return known[2]

    @property
    def problems(self) -> list[str]:
        """What could not be read so far, one line each."""
        if self._known is None:
            return []
        _, log, metadata = self._known
        return [*map(str, log.damage.values()), *metadata.problems]
