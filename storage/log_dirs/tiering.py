"""Opens log directories together with the remote storage of their topics (tiered storage)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..config.kafka import ReaderConfig
from ..errors import LogDirError
from ..io.disk import DirFd
from ..log.read.context import ReadContext
from ..log.read.log import Log
from ..tier.log_directory import RemoteLogDirectory, TieredLogDirectory
from ..tier.metadata import RemoteLogMetadata
from ..tier.opening import open_alone, open_layout
from ..tier.tier import Tier
from .log_dir import LogDir


class Tiering:
    """Opens directories as the configs of a run say.

    Remote storage without a broker's directory is opened as if it were one: with all partitions
    that have objects in it.
    """

    def __init__(
        self,
        config: ReaderConfig,
        context: ReadContext,
        numbers: Callable[[], Sequence[int]],
        open_log: Callable[[int], Log],
    ) -> None:
        """`numbers` and `open_log`: as of RemoteLogMetadata. Raises LogDirError if the place in the
        configs is not remote storage."""
        self._config = config
        self._limit = context.limits.max_batch_bytes
        self._tiers: list[Tier] = []
        self.tier: Tier | None = None
        if config.kafkafs_tier:
            layout = open_layout(config.kafkafs_tier, config)
            self.tier = Tier(layout, RemoteLogMetadata(numbers, open_log), self._limit)
            self._tiers.append(self.tier)

    def open(self, path: str) -> LogDir:
        """Opens a log directory. Raises LogDirError if `path` is neither one nor remote storage."""
        if self.tier is not None:
            return LogDir(path, TieredLogDirectory(path, self.tier))
        try:
            return LogDir(path)
        except LogDirError:
            layout = open_alone(DirFd(path), self._config)
            if layout is None:
                raise
        tier = Tier(layout, None, self._limit)
        self._tiers.append(tier)
        return LogDir(path, RemoteLogDirectory(path, tier), is_bare=True)

    @property
    def problems(self) -> list[str]:
        """What was found to be wrong in remote storage so far, one line each."""
        return [problem for tier in self._tiers for problem in tier.problems]
