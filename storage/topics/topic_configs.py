"""Resolves the topic configs of a writing engine, and stores them in every log directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..config.kafka import Configs, Resolved, TopicConfig, checked_topic_config, topic_config
from ..config.topic_file import TopicConfigFiles
from ..log_dirs.writable_log_dir import WritableLogDir
from ..log_dirs.writable_log_dirs import WritableLogDirs, refuse_offline

#: The sources of a topic's configs, with these for kafkafs's own file.
Sources = Callable[[str, Mapping[str, str]], Configs]


class StoredTopicConfigs:
    """The topic configs in kafkafs's own file. Only one thread at a time may change them."""

    def __init__(self, dirs: WritableLogDirs, sources: Sources) -> None:
        """Reads the files and makes them identical. Raises CorruptError if one of them is
        damaged."""
        self._dirs = dirs
        self._sources = sources
        self._files = TopicConfigFiles([each.directory for each in dirs.dirs])
        self._are_files_right = True
        for directory in self._files.stale:
            self._files.write(directory)

    def of(self, topic: str) -> Mapping[str, str]:
        """Returns the stored configs of a topic."""
        return self._files.of(topic)

    def changed(self, topic: str, changes: Mapping[str, str | None]) -> dict[str, str]:
        """Returns the configs that would be stored after `changes`, in which None removes a config.
        Raises ConfigError."""
        return self._files.changed(topic, changes)

    def config_of(self, topic: str) -> TopicConfig:
        """Returns the effective configs of a topic, which need not exist; "" for a topic without
        its own."""
        return topic_config(self._sources(topic, self.of(topic))).config

    def delete_delay_ms(self) -> int:
        """Returns the broker's delay, as for a topic without its own configs
        (LogManager.deleteLogs)."""
        return self.config_of("").file_delete_delay_ms

    def check(self, topic: str, configs: Mapping[str, str], carried_over: bool = False) -> Resolved:
        """Resolves the configs of a topic with these in the file. Raises ConfigError;
        `carried_over` as in `check_topic_configs`."""
        sources = self._sources(topic, configs)
        return checked_topic_config(sources, carried_over=carried_over)

    def keep(self, topic: str, configs: Mapping[str, str]) -> None:
        """Stores the topic's configs in the file of every live directory. Raises LogDirOffline if
        there is none."""
        before = self.of(topic)
        if configs == before and self._are_files_right:
            return
        if not self._dirs.live():
            refuse_offline(self._dirs.dirs[0])
        self._files.replace(topic, configs)

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
