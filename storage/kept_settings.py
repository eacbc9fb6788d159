"""The settings of topics of an engine that writes: what they come to, and keeping them in every log
directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .config import Resolved, Settings, TopicConfig, checked_topic_config, topic_config
from .topic_settings import TopicSettings
from .writable_log_dir import WritableLogDir
from .writable_log_dirs import WritableLogDirs, refuse_offline

#: The sources of a topic's settings, with those given for kafkafs's own file.
Sources = Callable[[str, Mapping[str, str]], Settings]


class KeptSettings:
    """What kafkafs's own file says of topics. One thread at a time may keep something."""

    def __init__(self, dirs: WritableLogDirs, sources: Sources) -> None:
        """Reads the files and makes them the same. CorruptError when one of them is damaged."""
        self._dirs = dirs
        self._sources = sources
        self._files = TopicSettings([each.directory for each in dirs.dirs])
        self._are_files_right = True
        for directory in self._files.stale:
            self._files.write(directory)

    def of(self, topic: str) -> Mapping[str, str]:
        """What is kept of a topic."""
        return self._files.of(topic)

    def changed(self, topic: str, changes: Mapping[str, str | None]) -> dict[str, str]:
        """What would be kept after `changes`, in which None takes a setting away. ConfigError."""
        return self._files.changed(topic, changes)

    def config_of(self, topic: str) -> TopicConfig:
        """What counts for a topic, whether or not there is one; "": without settings of its own."""
        return topic_config(self._sources(topic, self.of(topic))).config

    def delete_delay_ms(self) -> int:
        """The broker's, as for a topic that has no settings of its own (LogManager.deleteLogs)."""
        return self.config_of("").file_delete_delay_ms

    def check(
        self, topic: str, settings: Mapping[str, str], carried_over: bool = False
    ) -> Resolved:
        """What would count for a topic with these in the file. ConfigError; `carried_over` as in
        `check_topic_settings`."""
        sources = self._sources(topic, settings)
        return checked_topic_config(sources, carried_over=carried_over)

    def keep(self, topic: str, settings: Mapping[str, str]) -> None:
        """Makes them those of the topic in the file of every live directory. LogDirOffline when
        there is none."""
        before = self.of(topic)
        if settings == before and self._are_files_right:
            return
        if not self._dirs.live():
            refuse_offline(self._dirs.dirs[0])
        self._files.replace(topic, settings)

        def write(log_dir: WritableLogDir) -> None:
            with log_dir.guarded():
                self._files.write(log_dir.directory)

        self._are_files_right = False
        try:
            self._dirs.for_each(write)
        except BaseException:
            self._files.replace(topic, before)
            raise
        self._are_files_right = True
