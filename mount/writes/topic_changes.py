"""Creates and deletes topics through a writable mount."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkafs.storage import (
    METADATA_TOPIC,
    ConfigsNotRemoved,
    InvalidPartitions,
    PartitionNotOpened,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
    printable,
    remote_remains,
)

from ..vfs.errnos import Exists, Invalid, NoSuchName, NotEmpty, NotPermitted

if TYPE_CHECKING:
    from kafkafs.storage import LogManager

logger = logging.getLogger(__name__)


class TopicChanges:
    """Creates and deletes topics. Any thread may use it; each call waits for the disk."""

    def __init__(self, engine: LogManager) -> None:
        self._engine = engine

    def make(self, topic: str) -> None:
        """Creates a topic with partition 0. Raises Exists, InvalidTopic, or TopicExists if the name
        collides with a similar one."""
        try:
            self._engine.create_topic(topic)
        except TopicExists as error:
            if error.existing == topic:
                raise Exists(str(error)) from None
            raise
        logger.info("topic %s created", topic)

    def add_partition(self, topic: str, name: str) -> None:
        """Creates the next partition of a topic, whose number must be `name`. Raises Exists,
        Invalid, NoSuchName, or NotPermitted if `name` is not a number."""
        refuse_quorum(topic)
        if not (name.isascii() and name.isdigit()):
            raise NotPermitted(
                f"{topic}: only partitions can be created here, not {printable(name)}"
            )
        try:
            self._add(topic, name)
        except UnknownTopic as error:
            raise NoSuchName(topic, error.__str__) from None

    def _add(self, topic: str, name: str) -> None:
        next_one = max(self._numbers(topic)) + 1
        if name != str(next_one):
            if name in map(str, self._numbers(topic)):
                raise Exists(f"{topic}/{name} exists")
            raise Invalid(f"{topic}: the next partition is {next_one}, not {name}")
        try:
            self._engine.create_partitions(topic, next_one + 1)
        except InvalidPartitions:
            if next_one in self._numbers(topic):  # it was created concurrently
                raise Exists(f"{topic}/{name} exists") from None
            raise
        logger.info("partition %s/%s created", topic, name)

    def delete(self, topic: str, is_empty: Callable[[int], bool]) -> None:
        """Deletes a topic if `is_empty` returns true for the number of each partition, and remote
        storage has nothing of it. A concurrent append either keeps the topic or is rejected. Raises
        NoSuchName or NotEmpty."""
        refuse_quorum(topic)
        try:
            if remains := remote_remains(self._engine, topic):
                raise NotEmpty(
                    f"{topic}: {remains}; have a broker delete it, or use `kafkafs topic"
                    " delete --keep-remote`"
                )
            while not self._delete(topic, is_empty):
                pass
        except UnknownTopic as error:
            raise NoSuchName(topic, error.__str__) from None
        except (UnknownPartition, PartitionNotOpened) as error:
            raise NotEmpty(f"{error}; its topic is kept") from None
        logger.info("topic %s deleted", topic)

    def _delete(self, topic: str, is_empty: Callable[[int], bool]) -> bool:
        """Tries once to delete the topic; returns False if it changed meanwhile."""
        ends = {
            number: self._engine.writer(topic, number).end_offset for number in self._numbers(topic)
        }
        for number in ends:
            if not is_empty(number):
                raise NotEmpty(f"{topic}/{number} has records")
        try:
            return self._engine.delete_unchanged_topic(topic, ends)
        except ConfigsNotRemoved as left:
            logger.warning("%s", left)
            return True

    def _numbers(self, topic: str) -> list[int]:
        """Returns the numbers of a topic's partitions. Raises UnknownTopic."""
        return self._engine.partitions_of(topic)


def refuse_quorum(topic: str) -> None:
    """Raises NotPermitted for the topic that only the quorum may change."""
    if topic == METADATA_TOPIC:
        raise NotPermitted(f"{METADATA_TOPIC} is the quorum's own log and cannot be changed here")
