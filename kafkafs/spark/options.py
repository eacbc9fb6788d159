"""Parses and validates the options of a read, which are named as in Spark's own Kafka source.

They have the meaning of Spark's KafkaSourceProvider. Names are case-insensitive, as in Spark.
Options that only concern the connection to a broker are accepted and ignored, so that a job can
move from a broker to files by changing its format. Unknown configs of Kafka's clients (`kafka.…`)
are ignored with a warning, as Kafka's clients do it; every other name is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafkafs.storage import (
    Isolation,
    TopicPartition,
    milliseconds,
)

from .option_texts import (
    OptionError,
    Supported,
    Texts,
    boolean,
    duration_ms,
    is_int,
    json_object,
    not_negative,
    one_of,
    paths_of,
    positive,
    schema_place,
)
from .topic_pattern import compile_topic_pattern

#: Special offsets for the end of the log and its start (ListOffsetsRequest).
LATEST: Final = -1
EARLIEST: Final = -2

#: The member of a stream's offsets that has the topics' ids. It cannot be a topic's name.
TOPIC_IDS: Final = ":topicIds"

#: The isolation level of everything that reads with Spark: the default of Kafka's consumer and of
#: Spark's source.
DEFAULT_ISOLATION: Final = Isolation.READ_UNCOMMITTED

_MAX_BYTES_PER_PARTITION: Final = 128 << 20
_MAX_TRIGGER_DELAY: Final = 15 * 60 * 1000  # ms


@dataclass(frozen=True, slots=True)
class OffsetRangeLimit:
    """Where reading starts or ends, as given by `option`.

    `everywhere` is an offset (or EARLIEST, LATEST) for all partitions; if it is None, `each` has
    one for every partition. With `is_time` the values are times in ms, and denote the first record
    at or after them.
    """

    option: str
    everywhere: int | None = None
    each: Mapping[TopicPartition, int] = field(default_factory=dict)
    is_time: bool = False

    def of(self, key: TopicPartition) -> int:
        return self.each[key] if self.everywhere is None else self.everywhere


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """All options of a read.

    At most one of `topics`, `topic_pattern` and `assigned` is not None. If all are None, all topics
    except Kafka's internal ones are read. `at_ms`: everything is read as it was at this time, in ms
    since 1970; None for now. `decode_value`: "registry", or the absolute path of the schema to
    which values are decoded; None: they are not; `decode_key`: the same of keys. `configs` are the
    storage engine's configs (`kafkafs.…`).
    """

    paths: tuple[str, ...]
    topics: tuple[str, ...] | None
    topic_pattern: re.Pattern[str] | None
    assigned: tuple[TopicPartition, ...] | None
    starting: OffsetRangeLimit
    ending: OffsetRangeLimit
    no_match_is_latest: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_bytes_per_partition: int
    include_headers: bool
    fail_on_data_loss: bool
    isolation: Isolation
    permissive: bool
    losses: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    checkpoint_topic_ids: bool
    at_ms: int | None
    decode_value: str | None
    decode_key: str | None
    configs: Mapping[str, str]

    @classmethod
    def parse(cls, given: Mapping[str, str], streaming: bool | None = False) -> ReadOptions:
        """Parses the options. Raises OptionError for an unknown name, an invalid value, or two
        options that contradict each other. `streaming` None means that it is not known yet whether
        this is a stream or a batch, and skips the checks of only one of them."""
        texts = Texts(given, _SUPPORTED)
        topics = texts.get("subscribe", _topics)
        pattern = texts.get("subscribePattern", compile_topic_pattern)
        assigned = texts.get("assign", _partitions)
        strategies = {"subscribe": topics, "subscribePattern": pattern, "assign": assigned}
        given_names = [name for name, value in strategies.items() if value is not None]
        if len(given_names) > 1:
            raise OptionError(given_names[1], f"cannot be combined with {given_names[0]}")
        starting = _limit(texts, "starting", LATEST if streaming else EARLIEST)
        ending = _limit(texts, "ending", LATEST)
        if streaming:
            _refuse(texts, _NOT_OF_STREAMS)
        elif streaming is False:
            _check_limits(starting, ending)
        most, least = (texts.get(f"{m}OffsetsPerTrigger", positive) for m in ("max", "min"))
        if most is not None and least is not None and least > most:
            raise OptionError("minOffsetsPerTrigger", f"{least} is more than maxOffsetsPerTrigger")
        strategy = texts.get("startingOffsetsByTimestampStrategy", one_of("error", "latest"))
        level = texts.get("kafka.isolation.level", one_of(*(level.value for level in Isolation)))
        return cls(
            paths=paths_of(texts),
            topics=topics,
            topic_pattern=pattern,
            assigned=assigned,
            starting=starting,
            ending=ending,
            no_match_is_latest=strategy == "latest",
            min_partitions=texts.get("minPartitions", positive),
            max_records_per_partition=texts.get("maxRecordsPerPartition", positive),
            max_bytes_per_partition=texts.get("maxBytesPerPartition", positive)
            or _MAX_BYTES_PER_PARTITION,
            include_headers=bool(texts.get("includeHeaders", boolean)),
            fail_on_data_loss=texts.get("failOnDataLoss", boolean) is not False,
            isolation=Isolation(level or DEFAULT_ISOLATION),
            permissive=texts.get("mode", one_of("failfast", "permissive")) == "permissive",
            losses=bool(texts.get("losses", boolean)),
            max_offsets_per_trigger=most,
            min_offsets_per_trigger=least,
            max_trigger_delay_ms=texts.get("maxTriggerDelay", duration_ms) or _MAX_TRIGGER_DELAY,
            checkpoint_topic_ids=texts.get("checkpointTopicIds", boolean) is not False,
            at_ms=texts.get("at", milliseconds),
            decode_value=texts.get("decodeValue", schema_place),
            decode_key=texts.get("decodeKey", schema_place),
            configs=texts.configs,
        )


# A stream has no end.
_NOT_OF_STREAMS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "at")
# Why there is no filter pushdown, see `range_reader.KafkafsReader`.
_NO_FILTERS: Final = (
    "filters cannot be pushed down, because PySpark runs the plan of one query on a DataFrame for "
    "all its other queries, which would then miss records; name what to read with subscribe, "
    "assign, startingOffsets, endingOffsets, startingTimestamp and endingTimestamp"
)
# Configs of Kafka's clients that only concern the connection to a broker.
CONNECTION_PREFIXES: Final = (
    "kafka.ssl.",
    "kafka.sasl.",
    "kafka.security.",
    "kafka.config.providers",
)
_CONNECTION: Final = (
    *("allow.auto.create.topics", "auto.commit.interval.ms", "bootstrap.servers"),
    *("check.crcs", "client.dns.lookup", "client.id", "client.rack"),
    *("connections.max.idle.ms", "default.api.timeout.ms", "enable.metrics.push"),
    *("exclude.internal.topics", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes"),
    *("group.id", "group.instance.id", "group.protocol", "group.remote.assignor"),
    *("heartbeat.interval.ms", "max.partition.fetch.bytes", "max.poll.interval.ms"),
    *("max.poll.records", "metadata.max.age.ms", "metadata.recovery.rebootstrap.trigger.ms"),
    *("metadata.recovery.strategy", "metric.reporters", "metrics.num.samples"),
    *("metrics.recording.level", "metrics.sample.window.ms"),
    *("partition.assignment.strategy", "receive.buffer.bytes", "reconnect.backoff.max.ms"),
    *("reconnect.backoff.ms", "request.timeout.ms", "retry.backoff.max.ms"),
    *("retry.backoff.ms", "send.buffer.bytes", "session.timeout.ms"),
    *("socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms"),
)


def client_configs(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the options for configs of Kafka's clients."""
    return tuple(f"kafka.{name}" for name in names)


_SUPPORTED: Final = Supported(
    names=(
        *("path", "paths", "subscribe", "subscribePattern", "assign"),
        *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
        *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
        *("startingOffsetsByTimestampStrategy", "minPartitions", "maxRecordsPerPartition"),
        *("includeHeaders", "failOnDataLoss", "kafka.isolation.level"),
        *("maxBytesPerPartition", "mode", "losses", "at", "decodeValue", "decodeKey", "tier"),
        # only for streams; batches ignore them, as in Spark's own source
        *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
        "checkpointTopicIds",
    ),
    ignored=(
        *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
        "groupIdPrefix",
        *client_configs(_CONNECTION),
    ),
    ignored_prefixes=CONNECTION_PREFIXES,
    refused={
        "pushFilters": _NO_FILTERS,
        **dict.fromkeys(
            client_configs(
                (
                    *("auto.offset.reset", "key.deserializer", "value.deserializer"),
                    *("enable.auto.commit", "interceptor.classes"),
                )
            ),
            "not supported, just as in Spark's Kafka source",
        ),
    },
)


def used_options(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of a read that are not ignored, by their documented spelling. Raises
    OptionError for an unknown name."""
    return Texts(given, _SUPPORTED).used


def _limit(texts: Texts, which: str, default: int) -> OffsetRangeLimit:
    """Returns the first given of three options, in Spark's order of precedence."""
    by_time, offsets = f"{which}Timestamp", f"{which}Offsets"
    by_partition = f"{which}OffsetsByTimestamp"
    time = texts.get(by_time, not_negative)
    times = texts.get(by_partition, _by_partition)
    found = texts.get(offsets, _offsets)
    if time is not None:
        return OffsetRangeLimit(by_time, everywhere=time, is_time=True)
    if times is not None:
        _refuse_below(0, times, by_partition)
        return OffsetRangeLimit(by_partition, each=times, is_time=True)
    if isinstance(found, dict):
        _refuse_below(EARLIEST, found, offsets)
        return OffsetRangeLimit(offsets, each=found)
    return OffsetRangeLimit(offsets, everywhere=default if found is None else found)


def _refuse(texts: Texts, names: Iterable[str]) -> None:
    for name in names:
        if texts.get(name, str) is not None:
            raise OptionError(name, "cannot be used in a stream")


def _refuse_below(least: int, each: Mapping[TopicPartition, int], option: str) -> None:
    for (topic, partition), value in each.items():
        if value < least:
            raise OptionError(option, f"{topic}-{partition}: {value} is less than {least}")


def _check_limits(starting: OffsetRangeLimit, ending: OffsetRangeLimit) -> None:
    """Checks Spark's rules for a batch: it must not start at the end or end at the start, and
    limits given per partition must agree."""
    for limit, wrong, name in ((starting, LATEST, "latest"), (ending, EARLIEST, "earliest")):
        if not limit.is_time and wrong in (limit.everywhere, *limit.each.values()):
            raise OptionError(limit.option, f"cannot be {name} ({wrong}) in a batch")
    if not starting.each or not ending.each or starting.is_time is not ending.is_time:
        return
    if differing := sorted(starting.each.keys() ^ ending.each.keys()):
        topic, partition = differing[0]
        why = f"names other partitions than {starting.option}: {topic}-{partition}"
        raise OptionError(ending.option, why)
    for (topic, partition), start in starting.each.items():
        end = ending.each[topic, partition]
        if 0 <= end < start:
            why = f"{topic}-{partition}: {end} is before the {start} of {starting.option}"
            raise OptionError(ending.option, why)


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise ValueError("names no topic")
    return topics


def _partitions(text: str) -> tuple[TopicPartition, ...]:
    form = f'must be JSON such as {{"orders": [0, 1]}}, not {text}'
    found = []
    for topic, numbers in json_object(text, form).items():
        if not isinstance(numbers, list) or not all(map(is_int, numbers)):
            raise ValueError(form)
        found += [(topic, number) for number in numbers]
    if not found:
        raise ValueError(form)
    return tuple(dict.fromkeys(found))


def _offsets(text: str) -> int | dict[TopicPartition, int]:
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    return _by_partition(text) if named is None else named


def _by_partition(text: str) -> dict[TopicPartition, int]:
    form = f'must be JSON such as {{"orders": {{"0": 23, "1": 42}}}}, not {text}'
    found: dict[TopicPartition, int] = {}
    for topic, numbers in json_object(text, form).items():
        if topic == TOPIC_IDS:
            why = "belongs to the checkpoint of a stream, and is not checked here; leave it out"
            raise ValueError(f"the member {TOPIC_IDS} {why}")
        if not isinstance(numbers, dict):
            raise ValueError(form)
        for partition, number in numbers.items():
            if not (partition.isascii() and partition.isdigit() and is_int(number)):
                raise ValueError(form)
            found[topic, int(partition)] = number
    return found
