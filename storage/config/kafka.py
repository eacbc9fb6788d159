"""Topic and broker configs under Kafka's names, with the defaults and ranges of Kafka 4.3.0.

See LogConfig and KafkaConfig. A topic's config takes its value from the first of these sources that
has one:

1. this run, under the topic's name for it (`-c retention.ms=1000`),
2. the topic: kafkafs's own file in the log directory, then the cluster's metadata,
3. this run, under the broker's name for it (`-c log.retention.hours=1`),
4. the broker's configs in the cluster's metadata: this broker's own, then those of all brokers,
5. Kafka's default.

A value that a broker wrote is never fatal: if it cannot be used, it is reported as a problem and
the next source applies. Values given for this run must be valid. A broker's `server.properties` is
not in its log directories; what was set there can only be given for the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ..errors import ConfigError, fresh
from ..io.remote.settings import cache_of
from ..wording import printable
from .schema import (
    INT_MAX,
    LONG_MAX,
    Declared,
    Rule,
    ServerName,
    attribute,
    boolean,
    declared,
    define,
    double,
    either,
    integer,
    list_of,
    one_of,
    ratio,
    read_value,
    text_of,
    unknown,
)

UNLIMITED = LONG_MAX
_MINUTE_MS = 60 * 1000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_MIB = 1 << 20
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def _int(at_least: int | None, at_most: int = INT_MAX) -> Rule:
    return integer(at_least, at_most)


def _remote_cache(text: str) -> str:
    cache_of(text)
    return text


def _long(at_least: int | None) -> Rule:
    return integer(at_least, LONG_MAX)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The configs of one topic. Times in ms, sizes in bytes; -1 means no limit where the config is
    a limit."""

    segment_bytes: int = define(
        1 << 30,
        _int(_MIB),
        "log.segment.bytes",
        written_rule=_int(14),  # before 4.0
    )
    internal_segment_bytes: int | None = define(None, _int(None))
    segment_ms: int = define(
        7 * _DAY_MS, _long(1), "log.roll.ms", ServerName("log.roll.hours", _HOUR_MS)
    )
    segment_jitter_ms: int = define(
        0, _long(0), "log.roll.jitter.ms", ServerName("log.roll.jitter.hours", _HOUR_MS)
    )
    segment_index_bytes: int = define(10 * _MIB, _int(4), "log.index.size.max.bytes")
    index_interval_bytes: int = define(4096, _int(0), "log.index.interval.bytes")
    preallocate: bool = define(False, boolean, "log.preallocate")
    flush_messages: int = define(UNLIMITED, _long(1), "log.flush.interval.messages")
    flush_ms: int = define(
        UNLIMITED, _long(0), "log.flush.interval.ms", "log.flush.scheduler.interval.ms"
    )
    retention_ms: int = define(
        7 * _DAY_MS,
        _long(-1),
        ServerName("log.retention.ms", is_limit=True),
        ServerName("log.retention.minutes", _MINUTE_MS, is_limit=True),
        ServerName("log.retention.hours", _HOUR_MS, is_limit=True),
    )
    retention_bytes: int = define(-1, _long(None), "log.retention.bytes")
    file_delete_delay_ms: int = define(_MINUTE_MS, _long(0), "log.segment.delete.delay.ms")
    cleanup_policy: tuple[str, ...] = define(
        ("delete",), list_of("compact", "delete"), "log.cleanup.policy"
    )
    min_cleanable_dirty_ratio: float = define(0.5, ratio, "log.cleaner.min.cleanable.ratio")
    delete_retention_ms: int = define(_DAY_MS, _long(0), "log.cleaner.delete.retention.ms")
    min_compaction_lag_ms: int = define(0, _long(0), "log.cleaner.min.compaction.lag.ms")
    max_compaction_lag_ms: int = define(UNLIMITED, _long(1), "log.cleaner.max.compaction.lag.ms")
    max_message_bytes: int = define(_MIB + 12, _int(0), "message.max.bytes")
    compression_type: str = define("producer", one_of(*_CODECS), "compression.type")
    compression_gzip_level: int = define(-1, either(-1, _int(1, 9)), "compression.gzip.level")
    compression_lz4_level: int = define(9, _int(1, 17), "compression.lz4.level")
    compression_zstd_level: int = define(3, _int(-131072, 22), "compression.zstd.level")
    message_timestamp_type: str = define(
        "CreateTime", one_of("CreateTime", "LogAppendTime"), "log.message.timestamp.type"
    )
    message_timestamp_before_max_ms: int = define(
        UNLIMITED, _long(0), "log.message.timestamp.before.max.ms"
    )
    message_timestamp_after_max_ms: int = define(
        _HOUR_MS, _long(0), "log.message.timestamp.after.max.ms"
    )
    # These do not affect the files here, but are topic configs all the same.
    min_insync_replicas: int = define(1, _int(1), "min.insync.replicas")
    unclean_leader_election_enable: bool = define(False, boolean, "unclean.leader.election.enable")
    leader_replication_throttled_replicas: tuple[str, ...] = define((), list_of())
    follower_replication_throttled_replicas: tuple[str, ...] = define((), list_of())
    remote_storage_enable: bool = define(False, boolean)
    remote_log_copy_disable: bool = define(False, boolean)
    remote_log_delete_on_disable: bool = define(False, boolean)
    local_retention_ms: int = define(-2, _long(-2), "log.local.retention.ms")
    local_retention_bytes: int = define(-2, _long(-2), "log.local.retention.bytes")

    @property
    def segment_size(self) -> int:
        """The size at which a segment is full. Only `internal.segment.bytes` may be below 1 MiB."""
        if self.internal_segment_bytes is not None:
            return self.internal_segment_bytes
        return self.segment_bytes


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The broker configs that no topic can override, as far as they concern its log directories."""

    log_flush_scheduler_interval_ms: int = define(UNLIMITED, _long(None))
    log_flush_offset_checkpoint_interval_ms: int = define(_MINUTE_MS, _int(0))
    log_flush_start_offset_checkpoint_interval_ms: int = define(_MINUTE_MS, _int(0))
    replica_high_watermark_checkpoint_interval_ms: int = define(5000, _long(None))
    log_retention_check_interval_ms: int = define(5 * _MINUTE_MS, _long(1))
    log_cleaner_enable: bool = define(True, boolean)
    log_cleaner_threads: int = define(1, _int(0))
    log_cleaner_dedupe_buffer_size: int = define(128 * _MIB, _long(None))
    log_cleaner_io_buffer_load_factor: float = define(0.9, double)
    log_cleaner_io_buffer_size: int = define(512 << 10, _int(0))
    log_cleaner_io_max_bytes_per_second: float = define(1.7976931348623157e308, double)
    log_cleaner_backoff_ms: int = define(15_000, _long(0))
    log_initial_task_delay_ms: int = define(30_000, _long(0))
    num_recovery_threads_per_data_dir: int = define(2, _int(1))
    producer_id_expiration_ms: int = define(_DAY_MS, _int(1))
    producer_id_expiration_check_interval_ms: int = define(10 * _MINUTE_MS, _int(1))
    transaction_max_timeout_ms: int = define(15 * _MINUTE_MS, _int(1))
    offsets_retention_minutes: int = define(7 * 24 * 60, _int(1))


@dataclass(frozen=True, slots=True)
class ReaderConfig:
    """Limits on kafkafs's own reading, for which Kafka has no names. Only set for a run."""

    # The largest batch, as stored and decompressed, that is read into memory.
    kafkafs_max_batch_bytes: int = define(128 * _MIB, _int(1))
    # Bytes of decoded batches to cache; 0 caches none.
    kafkafs_cache_bytes: int = define(64 * _MIB, _int(0))
    # The index of the latest record of each key, for all logs together; listing keys needs as much
    # again.
    kafkafs_key_cache_bytes: int = define(256 * _MIB, _int(_MIB))
    # The Parquet files of ranges that a mount keeps in its temporary directory, all together.
    kafkafs_range_parquet_bytes: int = define(8 << 30, _long(_MIB))
    # How long opening a stream may wait for its size to be determined.
    kafkafs_size_wait_ms: int = define(1000, _int(0))
    # Files and indexes to keep open; fewer if the process may not open as many.
    kafkafs_open_files: int = define(8192, _int(1))
    # Of URLs and archives: a directory for blocks and indexes, with the limit of its size.
    kafkafs_remote_cache: str | None = define(None, _remote_cache)
    # Blocks of URLs and archives to keep in memory.
    kafkafs_remote_memory_bytes: int = define(128 * _MIB, _long(_MIB))
    # How long a listing of a URL counts.
    kafkafs_remote_list_ms: int = define(30_000, _int(0))
    # How long an attempt of a request may take.
    kafkafs_remote_timeout_ms: int = define(30_000, _int(1))
    # Of the log directories, the one to serve where they contradict each other.
    kafkafs_prefer_dir: str | None = define(None, str)
    # The topic of the schema registry (kafkastore.topic).
    kafkafs_schemas_topic: str = define("_schemas", str)
    # Whether to decode with schemas that were hard-deleted, but are still on the disk.
    kafkafs_schemas_deleted: bool = define(False, boolean)
    # Schemas given as files; see `schemas/supplied.py`.
    kafkafs_schemas: str | None = define(None, str)
    # Where the remote storage of the topics is (tiered storage), which plugin wrote it, and the
    # prefix of its objects' names.
    kafkafs_tier: str | None = define(None, str)
    kafkafs_tier_layout: str | None = define(None, one_of("auto", "local", "aiven"))
    kafkafs_tier_prefix: str | None = define(None, str)
    # RSA keys with which the objects' keys are wrapped: [ID=]FILE, in PEM, separated by commas.
    kafkafs_tier_keys: str | None = define(None, str)
    # What to serve of Redpanda's partitions whose offsets in Kafka are not known: nothing, or
    # all records, at offsets that are too high by a constant.
    kafkafs_redpanda_offsets: str = define("exact", one_of("exact", "shifted"))


_TOPIC = declared(TopicConfig)
_BROKER = declared(BrokerConfig)
_READER = declared(ReaderConfig)
_SERVER_NAMES = {
    server.name: (server, define) for define in _TOPIC.values() for server in define.servers
}
_LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")
# The names of topic configs, and all names that can be set for a run.
TOPIC_CONFIG_NAMES = frozenset(_TOPIC)
CONFIG_NAMES = frozenset((*_TOPIC, *_BROKER, *_READER, *_SERVER_NAMES))
# A broker without remote storage refuses topics that have these.
REMOTE_CONFIGS = frozenset(
    (
        *("remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable"),
        *("local.retention.ms", "local.retention.bytes"),
    )
)


class ConfigSource(StrEnum):
    """Where a config's value comes from."""

    RUN = "this run"
    TOPIC_FILE = "kafkafs's configs of the topic"
    TOPIC = "the cluster's configs of the topic"
    RUN_BROKER = "this run, as a broker config"
    BROKER = "the cluster's configs of the broker"
    ALL_BROKERS = "the cluster's configs of all brokers"


@dataclass(frozen=True, slots=True)
class Configs:
    """The raw text values of each source, by name. `run` has been checked by `run_configs`."""

    run: Mapping[str, str] = field(default_factory=dict)
    topic_file: Mapping[str, str] = field(default_factory=dict)
    topic: Mapping[str, str] = field(default_factory=dict)
    broker: Mapping[str, str] = field(default_factory=dict)
    all_brokers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resolved:
    """A topic's configs, the sources of those that are not defaults, and the values that were
    ignored."""

    config: TopicConfig
    sources: Mapping[str, ConfigSource]
    problems: tuple[str, ...]

    @property
    def changed(self) -> dict[str, str]:
        """The configs that were set somewhere, as texts by name."""
        return {
            name: text for name, text in config_texts(self.config).items() if name in self.sources
        }

    def as_json(self) -> dict[str, Any]:
        """Returns all configs with their sources, and the problems."""
        sources = {name: str(source) for name, source in self.sources.items()}
        configs = {
            name: {"value": text, "source": sources.get(name, "default")}
            for name, text in config_texts(self.config).items()
        }
        return {"settings": configs, "problems": list(self.problems)}


def run_configs(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Checks names and values given for a run; if a name is given twice, the last value applies.
    Raises ConfigError for a name that does not exist or a value that Kafka would refuse."""
    found = dict(pairs)
    for name, text in found.items():
        known = _TOPIC.get(name) or _BROKER.get(name) or _READER.get(name)
        if known is not None:
            read_value(name, text, known.rule)
        elif name in _SERVER_NAMES:
            _server_value(name, text, strict=True)
        else:
            raise unknown(name, CONFIG_NAMES)
    return found


def check_topic_configs(
    configs: Mapping[str, str], names: Iterable[str] = (), *, carried_over: bool = False
) -> None:
    """Raises ConfigError if Kafka would refuse one of a topic's `configs`, or if a name in them or
    in `names` is not a topic config. With `carried_over`, values that only an older Kafka accepted
    are allowed, too."""
    for name in (*configs, *names):
        if name not in _TOPIC:
            raise unknown(name, _TOPIC)
    for name, text in configs.items():
        if not text.isprintable():
            raise ConfigError(name, f"must be one line of text (got {printable(text)!r})")
        read_value(name, text, _TOPIC[name].written_rule if carried_over else _TOPIC[name].rule)


def broker_config(run: Mapping[str, str]) -> BrokerConfig:
    """Returns the broker's configs, overridden by those of this run, which `run_configs` has
    checked."""
    return BrokerConfig(**_values(_BROKER, run))


def reader_config(run: Mapping[str, str]) -> ReaderConfig:
    """Returns the read limits, overridden by those of this run, which `run_configs` has
    checked."""
    return ReaderConfig(**_values(_READER, run))


def config_texts(config: TopicConfig | BrokerConfig | ReaderConfig) -> dict[str, str]:
    """Returns the configs by name, formatted as Kafka writes them, without those that have no
    value."""
    return {
        name.replace("_", "."): text_of(value)
        for name in config.__dataclass_fields__
        if (value := getattr(config, name)) is not None
    }


def topic_config(configs: Configs) -> Resolved:
    """Resolves a topic's configs from all sources. Raises ConfigError if those of this run
    contradict each other."""
    values: dict[str, Any] = {}
    sources: dict[str, ConfigSource] = {}
    problems: list[str] = []
    for name, known in _TOPIC.items():
        for source, text_name, text in _candidates(name, known, configs):
            strict = source in (ConfigSource.RUN, ConfigSource.RUN_BROKER)
            try:
                value = _value(name, known, text_name, text, strict)
            except ConfigError as error:
                problems.append(f"{source}: {error}")
                continue
            values[attribute(name)], sources[name] = value, source
            break
    problems += _unknown_names(configs)
    config = TopicConfig(**values)
    conflict = lag_conflict(config)
    if conflict is not None:
        if ConfigSource.RUN in map(sources.get, _LAGS):
            raise fresh(conflict)
        problems.append(str(conflict))
    return Resolved(config, sources, tuple(problems))


def checked_topic_config(configs: Configs, *, carried_over: bool = False) -> Resolved:
    """Resolves a topic's configs, whose `configs` in kafkafs's own file are new. Raises
    ConfigError; `carried_over` as in `check_topic_configs`."""
    check_topic_configs(configs.topic_file, carried_over=carried_over)
    resolved = topic_config(configs)
    for conflict in (lag_conflict(resolved.config), _tier_conflict(resolved.config)):
        if conflict is not None:
            raise fresh(conflict)
    return resolved


def _tier_conflict(config: TopicConfig) -> ConfigError | None:
    """Returns the error of a topic that is compacted and has remote storage, else None
    (LogConfig.validateRemoteStorageRequiresDeleteCleanupPolicy)."""
    if not config.remote_storage_enable or "compact" not in config.cleanup_policy:
        return None
    why = "must be delete or empty for a topic with remote.storage.enable=true"
    return ConfigError("cleanup.policy", f"{why} (got {text_of(config.cleanup_policy)})")


def lag_conflict(config: TopicConfig) -> ConfigError | None:
    """Returns the error of a topic whose minimum compaction lag exceeds its maximum, else None."""
    low, high = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if low <= high:
        return None
    return ConfigError(_LAGS[0], f"{low} is greater than {_LAGS[1]} ({high})")


def _candidates(
    name: str, known: Declared, configs: Configs
) -> Iterable[tuple[ConfigSource, str, str]]:
    """Yields source, name and text of each value that a config may have, in order of precedence."""
    for source, texts in (
        (ConfigSource.RUN, configs.run),
        (ConfigSource.TOPIC_FILE, configs.topic_file),
        (ConfigSource.TOPIC, configs.topic),
    ):
        if name in texts:
            yield source, name, texts[name]
    for server in known.servers:
        if server.name in configs.run:
            yield ConfigSource.RUN_BROKER, server.name, configs.run[server.name]
    # As in a broker, the two layers are merged before the order of the names applies.
    for server in known.servers:
        for source, texts in (
            (ConfigSource.BROKER, configs.broker),
            (ConfigSource.ALL_BROKERS, configs.all_brokers),
        ):
            if server.name in texts:
                yield source, server.name, texts[server.name]


def _value(name: str, known: Declared, text_name: str, text: str, strict: bool) -> Any:
    if text_name != name:
        return _server_value(text_name, text, strict)
    return read_value(name, text, known.rule if strict else known.written_rule)


def _server_value(name: str, text: str, strict: bool) -> Any:
    """Returns a topic config's value from the broker config `name`, converted to the topic's
    unit."""
    server, known = _SERVER_NAMES[name]
    rule = known.rule if strict else known.written_rule
    if server.factor == 1 and not server.is_limit:
        return read_value(name, text, rule)
    number = int(read_value(name, text, _long(None) if server.factor == 1 else _int(None)))
    return read_value(
        name, str(-1 if number < 0 and server.is_limit else number * server.factor), rule
    )


def _values(table: Mapping[str, Declared], texts: Mapping[str, str]) -> dict[str, Any]:
    return {
        attribute(name): read_value(name, texts[name], known.rule)
        for name, known in table.items()
        if name in texts
    }


def _unknown_names(configs: Configs) -> Iterable[str]:
    for source, texts in (
        (ConfigSource.TOPIC_FILE, configs.topic_file),
        (ConfigSource.TOPIC, configs.topic),
    ):
        for name in texts:
            if name not in _TOPIC:
                yield f"{source}: {name}: not a topic config of Kafka 4.3"
