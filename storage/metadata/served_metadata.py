"""The cluster's metadata in the `__cluster_metadata-0` that is served. That may change to another
directory: another replica may be elected, or a broker may make the directory again."""

from __future__ import annotations

from collections.abc import Callable

from ..format.files.names import METADATA_TOPIC
from ..io.disk import DirFd
from ..log.read.context import ReadContext
from ..log.read.log import Log
from .cluster_metadata import ClusterMetadata


class ServedMetadata:
    """Reads the metadata, as they are now or as of `at_ms` (ms since 1970)."""

    def __init__(self, context: ReadContext, at_ms: int | None = None) -> None:
        self._context = context
        self._at_ms = at_ms
        # The directory's path and inode, its log and the reader; replaced as a whole.
        self._known: tuple[tuple[str, int], Log, ClusterMetadata] | None = None

    def of(
        self, directory: DirFd, inode: int, log_start_offset: Callable[[], int]
    ) -> ClusterMetadata:
        """Returns the reader of a directory, the same one until another directory is given.
        `log_start_offset`: as for `Log`."""
        key, known = (directory.path, inode), self._known
        if known is None or known[0] != key:
            context, at_ms = self._context, self._at_ms
            log = Log(directory, METADATA_TOPIC, 0, log_start_offset, context)
            shown = log
            if at_ms is not None:
                shown = Log(directory, METADATA_TOPIC, 0, log_start_offset, context, at_ms)
            known = self._known = key, log, ClusterMetadata(shown, context, at_ms, log)
        return known[2]

    @property
    def problems(self) -> list[str]:
        """What could not be read so far, one line each."""
        if self._known is None:
            return []
        _, log, metadata = self._known
        return [*map(str, log.damage.values()), *metadata.problems]
