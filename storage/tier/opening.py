"""Opens remote storage as the configs of a run name it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..config.kafka import ReaderConfig
from ..errors import LogDirError, SegmentGone
from ..io.directory import Directory
from ..io.opening import open_directory
from ..io.remote.settings import RemoteSettings
from ..log.read.context import ReadContext
from ..log.read.log import Log
from .aiven.layout import AivenLayout
from .configs import key_files
from .layout import TierLayout
from .local_layout import LocalLayout
from .log_directory import RemoteLogDirectory, TieredLogDirectory, not_a_tier
from .metadata import RemoteLogMetadata
from .tier import Tier


def open_layout(path: str, config: ReaderConfig, settings: RemoteSettings) -> TierLayout:
    """Opens the objects below a path or URL. Raises LogDirError if there are none of the wanted
    layout."""
    directory = open_directory(path, settings)
    try:
        found = _open(directory, config)
    except SegmentGone:
        raise LogDirError(path, "no such directory") from None
    if found is None:
        raise not_a_tier(path)
    return found


def open_alone(directory: Directory, config: ReaderConfig) -> TierLayout | None:
    """Opens a directory that is no log directory, if it is remote storage; else returns None."""
    try:
        return _open(directory, config)
    except (SegmentGone, LogDirError, OSError):
        return None


def _open(directory: Directory, config: ReaderConfig) -> TierLayout | None:
    layout = config.kafkafs_tier_layout or "auto"
    if layout in ("auto", "local") and LocalLayout.is_at(directory):
        return LocalLayout(directory)
    if layout == "local":
        return None
    if layout == "aiven" or config.kafkafs_tier_prefix or AivenLayout.is_at(directory):
        keys = key_files(config.kafkafs_tier_keys or "")
        return AivenLayout(directory, config.kafkafs_tier_prefix or "", keys)
    return None


class Tiering:
    """Remote storage as the configs of a run name it."""

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
        self._settings = context.limits.remote
        self._tiers: list[Tier] = []
        self.tier: Tier | None = None
        if config.kafkafs_tier:
            layout = open_layout(config.kafkafs_tier, config, self._settings)
            self.tier = Tier(layout, RemoteLogMetadata(numbers, open_log), self._limit)
            self._tiers.append(self.tier)

    def joined(self, directory: Directory) -> Directory:
        """Returns a broker's log directory with its remote storage, if it has any."""
        return directory if self.tier is None else TieredLogDirectory(directory, self.tier)

    def alone(self, directory: Directory) -> Directory | None:
        """Returns remote storage as if it were a log directory, None if it is none."""
        layout = open_alone(directory, self._config)
        if layout is None:
            return None
        tier = Tier(layout, None, self._limit)
        self._tiers.append(tier)
        return RemoteLogDirectory(directory, tier)

    @property
    def problems(self) -> list[str]:
        """What was found to be wrong in remote storage so far, one line each."""
        return [problem for tier in self._tiers for problem in tier.problems]
