"""What a topic has in remote storage (tiered storage), which kafkafs never changes: operations that
would leave something behind there, or hide it, are refused."""

from __future__ import annotations

from ..errors import ConfigError, InRemoteStorage, StorageError
from ..format.files.names import METADATA_TOPIC, TopicPartition
from ..log_dirs.engine import Engine
from ..log_dirs.log_dir import PartitionDir

_ENABLE = "remote.storage.enable"


def may_be_tiered(engine: Engine, found: PartitionDir) -> bool:
    """Returns whether a partition may have segments in remote storage although its topic's configs
    are not known, because the cluster's metadata is elsewhere. Then its log start offset, which the
    broker has checkpointed, says it: the log begins there if it is before the first segment."""
    is_of_broker = found.log_dir.is_of_kraft and METADATA_TOPIC not in engine.topics()
    return is_of_broker and (found.topic, found.partition) in found.log_dir.log_start_offsets


def remote_remains(engine: Engine, topic: str) -> str:
    """Says what remote storage has, or may have, of a topic; "" if nothing. Raises UnknownTopic."""
    keys = [(topic, number) for number in engine.partitions_of(topic)]
    return next(filter(None, (_remains_of(engine, key) for key in keys)), "")


def _is_tiered(engine: Engine, key: TopicPartition) -> bool:
    config = engine.topic_config(key[0]).config
    return config.remote_storage_enable or _begins_there(engine, key)


def _begins_there(engine: Engine, key: TopicPartition) -> bool:
    """Returns whether a log begins before its first segment, if its configs are not known."""
    try:
        found = engine.partition_dir(*key)
        if not may_be_tiered(engine, found):
            return False
        return (
            found.log_dir.log_start_offsets[key] < engine.log(*key, keep=False).view().start_offset
        )
    except (StorageError, OSError):  # reported where it matters
        return False


def _remains_of(engine: Engine, key: TopicPartition) -> str:
    there = engine.remote_contents(key)
    place = "{}/{}".format(*key)
    if there is None:
        where = "the part of __remote_log_metadata that says so is not in these directories"
        says = f"segments of {place} may be in remote storage ({where})"
        return says if _is_tiered(engine, key) else ""
    if not there.segments:
        return ""
    count = f"{there.segments} segments" if there.segments > 1 else "a segment"
    verb = "are" if there.segments > 1 else "is"
    offsets = f"offsets {there.first_offset} to {there.last_offset}"
    return f"{count} of {place} with {offsets} ({there.size} bytes) {verb} in remote storage"


def refuse_deletion(engine: Engine, topic: str) -> None:
    """Raises InRemoteStorage if deleting a topic would leave segments in remote storage."""
    if remains := remote_remains(engine, topic):
        raise InRemoteStorage(topic, remains)


def refuse_disabling(engine: Engine, topic: str, is_enabled: bool) -> None:
    """Raises ConfigError if remote storage of a topic was enabled, and is no longer to be, while it
    has segments there: these would no longer be part of the log. Kafka, too, only allows it if it
    deletes them (remote.log.delete.on.disable)."""
    if is_enabled or not engine.topic_config(topic).config.remote_storage_enable:
        return
    if remains := remote_remains(engine, topic):
        raise ConfigError(
            _ENABLE,
            f"cannot be disabled here, because {remains}: have a broker do it, with"
            " remote.log.delete.on.disable=true; remote.log.copy.disable=true keeps them",
        )
