"""`<topic>/`: its partitions by number, and its settings."""

from __future__ import annotations

from collections.abc import Iterator

from kafkafs.storage.errors import UnknownPartition, UnknownTopic

from .. import render
from ..catalog import Catalog
from ..errnos import NoSuchName
from ..inodes import ROOT, Kind, pack
from ..partition import Topic
from .computed import ComputedFile
from .node import Attributes, Directory, Node, Run, directory_attributes, rows_of
from .partition import PartitionDirectory

SETTINGS = "config.properties"
DIRECTORY_NUMBER, SETTINGS_NUMBER = range(2)


class TopicDirectory(Directory):
    parent_inode = ROOT

    def __init__(self, catalog: Catalog, name: str) -> None:
        self._catalog = catalog
        self.name = name
        self._place = catalog.places.number(Topic(name))
        self.inode = pack(Kind.TOPIC, self._place, DIRECTORY_NUMBER)

    def attributes(self) -> Attributes:
        return directory_attributes(self.inode, self._catalog.started_ns)

    def child(self, name: str) -> Node:
        if name == SETTINGS:
            return self.settings()
        number = int(name) if name.isascii() and name.isdigit() else -1
        if str(number) != name:
            raise NoSuchName(name)
        return self.partition(number)

    def partition(self, number: int) -> PartitionDirectory:
        """The directory of a partition. NoSuchName."""
        try:
            partition = self._catalog.partition(self.name, number)
        except (UnknownTopic, UnknownPartition):
            raise NoSuchName(str(number)) from None
        return PartitionDirectory(self._catalog, partition, self.inode)

    def settings(self) -> ComputedFile:
        inode = pack(Kind.TOPIC, self._place, SETTINGS_NUMBER)
        engine = self._catalog.engine
        return ComputedFile(
            inode,
            self._catalog.started_ns,
            lambda: render.properties(engine.topic_config(self.name).changed),
        )

    def runs(self, start: int) -> Iterator[Run]:
        return rows_of(self._children(), start)

    def _children(self) -> Iterator[tuple[str, Node]]:
        yield SETTINGS, self.settings()
        for number in self._catalog.topic(self.name):
            try:
                yield str(number), self.partition(number)
            except NoSuchName:  # deleted since the topic was listed
                continue
