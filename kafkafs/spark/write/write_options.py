"""Parses and validates the options of a write, which are named as in Spark's own Kafka sink.

As in a read, options that only concern the connection to a broker are accepted and ignored, and
unknown configs of Kafka's producer are ignored with a warning; every other name is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafkafs.storage import Codec, is_legal_topic

from ..option_texts import (
    OptionError,
    Supported,
    Texts,
    boolean,
    local_option,
    not_negative,
    one_of,
    paths_of,
    positive,
)
from ..options import CONNECTION_PREFIXES, client_configs

_CODECS: Final = {"none": Codec.NONE} | {codec.kafka_name: codec for codec in Codec if codec}
_LEVELS: Final = {
    codec: f"kafka.compression.{codec.kafka_name}.level"
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD)
}
_CONNECTION: Final = (
    *("acks", "bootstrap.servers", "buffer.memory", "client.dns.lookup", "client.id"),
    *("connections.max.idle.ms", "delivery.timeout.ms", "enable.idempotence"),
    *("enable.metrics.push", "linger.ms", "max.block.ms"),
    *("max.in.flight.requests.per.connection", "max.request.size", "metadata.max.age.ms"),
    *("metadata.max.idle.ms", "metadata.recovery.rebootstrap.trigger.ms"),
    *("metadata.recovery.strategy", "metric.reporters", "metrics.num.samples"),
    *("metrics.recording.level", "metrics.sample.window.ms"),
    *("partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms"),
    *("receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms"),
    *("request.timeout.ms", "retries", "retry.backoff.max.ms", "retry.backoff.ms"),
    *("send.buffer.bytes", "socket.connection.setup.timeout.max.ms"),
    *("socket.connection.setup.timeout.ms", "transaction.timeout.ms"),
)
_SUPPORTED: Final = Supported(
    names=(
        *("path", "paths", "topic", "checkpointLocation"),
        *("stagingDir", "createTopics", "unregistered", "queryId", "epoch"),
        *("kafka.compression.type", "kafka.batch.size", "kafka.partitioner.ignore.keys"),
        *_LEVELS.values(),
    ),
    # Spark's sink writes a column `headers` whatever includeHeaders, an option of the source, says.
    ignored=("includeHeaders", *client_configs(_CONNECTION)),
    ignored_prefixes=CONNECTION_PREFIXES,
    refused=dict.fromkeys(
        client_configs(("key.serializer", "value.serializer", "interceptor.classes")),
        "not supported, just as in Spark's Kafka sink",
    )
    # These would change the partition or the visibility of records.
    | dict.fromkeys(client_configs(("partitioner.class", "transactional.id")), "not supported"),
)
# Spark passes no options of a table to a write; why its columns have no path, see tables.py.
_NAME_PATH: Final = """.save("/data"), or INSERT INTO t WITH (path = '/data') for a table"""
# A producer's batches are small because records wait for them; here all records are available.
_BATCH_BYTES: Final = 65536


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """All options of a write.

    `topic`: for all records, overriding their column; None: the column's. `create_topics`: the
    number of partitions of topics to create, None if a missing topic is an error; `unregistered`:
    create them even if a KRaft broker would make them stray partitions. `level` None is Kafka's
    default. `writer` and `epoch`: the writer and the number of its write, so that each is done only
    once. `configs` are the storage engine's configs (`kafkafs.…`).
    """

    paths: tuple[str, ...]
    topic: str | None
    staging_dir: str | None
    create_topics: int | None
    unregistered: bool
    codec: Codec
    level: int | None
    batch_bytes: int
    ignore_keys: bool
    writer: str | None
    epoch: int | None
    configs: Mapping[str, str]

    @classmethod
    def parse(cls, given: Mapping[str, str], streaming: bool = False) -> WriteOptions:
        """Parses the options. Raises OptionError for an unknown name, an invalid value, or two
        options that contradict each other."""
        texts = Texts(given, _SUPPORTED)
        writer, epoch = texts.get("queryId", _text), texts.get("epoch", not_negative)
        if streaming and epoch is not None:
            raise OptionError("epoch", "a stream numbers its batches itself")
        if not streaming and (writer is None) is not (epoch is None):
            name, missing = ("queryId", "epoch") if epoch is None else ("epoch", "queryId")
            raise OptionError(name, f"needs the option {missing}, too")
        codec = _CODECS[texts.get("kafka.compression.type", one_of(*_CODECS)) or "none"]
        levels = {each: texts.get(name, int) for each, name in _LEVELS.items()}
        return cls(
            paths=paths_of(texts, _NAME_PATH),
            topic=texts.get("topic", _topic),
            staging_dir=texts.get("stagingDir", _staging_dir),
            create_topics=texts.get("createTopics", positive),
            unregistered=bool(texts.get("unregistered", boolean)),
            codec=codec,
            level=levels.get(codec),
            batch_bytes=texts.get("kafka.batch.size", positive) or _BATCH_BYTES,
            ignore_keys=bool(texts.get("kafka.partitioner.ignore.keys", boolean)),
            writer=writer,
            epoch=epoch,
            configs=texts.configs,
        )


def _topic(text: str) -> str:
    if not is_legal_topic(text):
        raise ValueError(f"{text!r} cannot be a topic's name")
    return text


def _text(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _staging_dir(text: str) -> str:
    path = local_option("stagingDir", text)
    if not path.startswith("/"):
        raise ValueError(f"{text!r} is not an absolute path")
    return path
