"""`.kafkafs/report.html`: a page that shows what is in the log directories."""

from __future__ import annotations

import threading

from ..catalog import Catalog
from ..documents.report import MOST_BYTES
from ..node import FILE_MODE, Attributes, File, FixedFile, stream_attributes
from ..vfs.handles import BytesHandle, Handle
from ..vfs.timeouts import BRIEFLY, NOT_AT_ALL


class ReportFile(File):
    """The name. Each lookup leads to another page, so that it shows the logs as they are then."""

    is_fixed = False

    def __init__(self, catalog: Catalog, inode: int) -> None:
        self.inode = inode
        self._catalog = catalog

    def attributes(self) -> Attributes:
        return stream_attributes(self.inode, self._catalog.started_ns, entry_timeout=NOT_AT_ALL)

    def fixed(self) -> FixedFile:
        key = self.inode, object()
        return self._catalog.contents.file(key, lambda inode: ReportPage(self._catalog, inode))

    def open(self, *, waits: bool = True) -> Handle:
        return self.fixed().open()


class ReportPage(FixedFile):
    """A page, which is made when it is opened first. Until then, its size is a bound: a listing
    with sizes must not wait for all batch headers."""

    memory = 4 << 20

    def __init__(self, catalog: Catalog, inode: int) -> None:
        self.inode = inode
        self._catalog = catalog
        self._making = threading.Lock()  # held while the page is made
        self._data: bytes | None = None

    def attributes(self) -> Attributes:
        data, mtime_ns = self._data, self._catalog.started_ns
        if data is None:
            return Attributes(self.inode, FILE_MODE, MOST_BYTES, mtime_ns, NOT_AT_ALL, NOT_AT_ALL)
        return Attributes(self.inode, FILE_MODE, len(data), mtime_ns, NOT_AT_ALL, BRIEFLY)

    @property
    def is_made(self) -> bool:
        return self._data is not None

    def check(self) -> None:
        """Does nothing: it shows a past state, so it cannot become stale."""

    def open(self, *, waits: bool = True) -> Handle:
        with self._making:
            if self._data is None:
                self._data = self._page()
        return BytesHandle(self._data, direct_io=True)

    def _page(self) -> bytes:
        """Returns the page, which names partitions that cannot be read, too. The modules that make
        it are imported only here."""
        from kafkafs.storage import LogDirsReport, ReportLogDirs, report

        from ..documents.report.page import page

        rows = report(self._catalog.engine, ReportLogDirs())
        return page(next(row for row in rows if isinstance(row, LogDirsReport)))
