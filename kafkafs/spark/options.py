"""Parses and validates the options of a read, which are named as in Spark's own Kafka source.

They have the meaning of Spark's KafkaSourceProvider. Names are case-insensitive, as in Spark.
Options that only concern the connection to a broker are accepted and ignored, so that a job can
move from a broker to files by changing its format. Unknown configs of Kafka's clients (`kafka.…`)
are ignored with a warning, as Kafka's clients do it; every other name is rejected.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from kafkafs.storage import (
    TIER_CONFIG,
    Isolation,
    LogDirError,
    TopicPartition,
    absolute_configs,
    local_path,
    milliseconds,
)

from .topic_pattern import compile_topic_pattern

LOGGER: Final = logging.getLogger("kafkafs.spark")

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
_MAX_LONG: Final = (1 << 63) - 1


class OptionError(ValueError):
    """The option `name` does not exist or has an invalid value; `why` explains."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name = name
        self.why = why

    def __str__(self) -> str:
        return f"option {self.name}: {self.why}"


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
    which values are decoded; None: they are not. `configs` are the storage engine's configs
    (`kafkafs.…`).
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
            max_trigger_delay_ms=texts.get("maxTriggerDelay", _duration_ms) or _MAX_TRIGGER_DELAY,
            checkpoint_topic_ids=texts.get("checkpointTopicIds", boolean) is not False,
            at_ms=texts.get("at", milliseconds),
            decode_value=texts.get("decodeValue", _schema_place),
            configs=texts.configs,
        )


@dataclass(frozen=True)
class Supported:
    """The names of options, spelled as documented.

    `names` are parsed. `ignored` concern the connection to a broker, and so do configs that start
    with one of `ignored_prefixes`. `refused` says why names are rejected.
    """

    names: tuple[str, ...]
    ignored: tuple[str, ...]
    ignored_prefixes: tuple[str, ...]
    refused: Mapping[str, str]

    def check_other(self, name: str) -> None:
        """Accepts a name that is none of `names`. Raises OptionError unless it can be ignored; logs
        a warning if it is an unknown config of Kafka's clients."""
        lower = name.lower()
        known = {each.lower(): each for each in (*self.names, *self.ignored)}
        for refused, why in self.refused.items():
            if lower == refused.lower():
                raise OptionError(refused, why)
        if lower in known or lower.startswith(self.ignored_prefixes):
            return
        close = get_close_matches(lower, known, n=1, cutoff=0.8)
        hint = f"; did you mean {known[close[0]]}?" if close else ""
        if not lower.startswith("kafka."):
            raise OptionError(name, f"there is no such option{hint}")
        _warn_once(f"option {name} is ignored: kafkafs does not know this config{hint}")


@cache
def _warn_once(message: str) -> None:
    """Logs a warning once in this process: Spark has the options of one query parsed often."""
    LOGGER.warning("%s", message)


class Texts:
    """The options as they were given.

    `configs`: those that are configs of the storage engine. `used`: all that are not ignored, by
    the documented spelling.
    """

    def __init__(self, given: Mapping[str, str], supported: Supported) -> None:
        """Raises OptionError for a name that is not supported."""
        self.configs: dict[str, str] = {}
        self.used: dict[str, str] = {}
        spelled = {name.lower(): name for name in supported.names}
        for name, value in given.items():
            lower = name.lower()
            if lower.startswith("kafkafs."):
                self.configs[lower] = value
            elif lower == "tier" and "tier" in spelled:
                self.configs[TIER_CONFIG] = value
            elif lower in spelled:
                self.used[spelled[lower]] = value
            else:
                supported.check_other(name)
        try:  # workers have their own working directories
            self.configs = absolute_configs(self.configs.items())
        except LogDirError as error:
            raise OptionError("kafkafs.prefer.dir", str(error)) from None
        self.used.update(self.configs)

    def get(self, name: str, parse: Callable[[str], Any]) -> Any:
        """Returns the parsed option, None if it was not given. Raises OptionError if `parse` raises
        ValueError."""
        text = self.used.get(name)
        if text is None:
            return None
        try:
            return parse(text.strip())
        except ValueError as error:
            raise OptionError(name, str(error)) from None


# JavaUtils.timeStringAs; and the units of Spark's intervals, as in trigger(processingTime=…).
_UNITS_US: Final = {
    **dict.fromkeys(("us", "microsecond", "microseconds"), 1),
    **dict.fromkeys(("", "ms", "millisecond", "milliseconds"), 1000),
    **dict.fromkeys(("s", "second", "seconds"), 1_000_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000),
    **dict.fromkeys(("week", "weeks"), 7 * 86_400_000_000),
}
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
        *("maxBytesPerPartition", "mode", "losses", "at", "decodeValue", "tier"),
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


def paths_of(texts: Texts, how: str = '.load("/data")') -> tuple[str, ...]:
    """Returns the paths: `load("/a,/b")` sets `path`, `load(["/a", "/b"])` sets `paths` as JSON.
    `how` shows in an error how to name a path. Raises OptionError if there is none."""
    listed = texts.get("paths", _json_list) or texts.get("path", lambda text: [text]) or []
    paths = [path.strip() for text in listed for path in text.split(",") if path.strip()]
    if not paths:
        raise OptionError("path", f"name the log directories: {how}")
    return tuple(local_option("path", path) for path in paths)


def local_option(name: str, path: str) -> str:
    """Returns the local path of option `name`. Raises OptionError for a URL other than `file:`."""
    try:
        return local_path(path)
    except LogDirError as error:
        raise OptionError(name, str(error)) from None


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


def _schema_place(text: str) -> str:
    """Returns "registry", or an absolute path: workers have their own working directories."""
    if text == "registry":
        return text
    try:
        return os.path.abspath(local_path(text))
    except LogDirError as error:
        raise ValueError(str(error)) from None


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise ValueError("names no topic")
    return topics


def _partitions(text: str) -> tuple[TopicPartition, ...]:
    form = f'must be JSON such as {{"orders": [0, 1]}}, not {text}'
    found = []
    for topic, numbers in _json_object(text, form).items():
        if not isinstance(numbers, list) or not all(map(_is_int, numbers)):
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
    for topic, numbers in _json_object(text, form).items():
        if topic == TOPIC_IDS:
            why = "belongs to the checkpoint of a stream, and is not checked here; leave it out"
            raise ValueError(f"the member {TOPIC_IDS} {why}")
        if not isinstance(numbers, dict):
            raise ValueError(form)
        for partition, number in numbers.items():
            if not (partition.isascii() and partition.isdigit() and _is_int(number)):
                raise ValueError(form)
            found[topic, int(partition)] = number
    return found


def _json_object(text: str, form: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(form) from None
    if not isinstance(parsed, dict):
        raise ValueError(form)
    return parsed


def _json_list(text: str) -> list[str]:
    parsed = json.loads(text)
    if not isinstance(parsed, list) or not all(isinstance(item, str) for item in parsed):
        raise ValueError(f"not a JSON list of paths: {text}")
    return parsed


def _is_int(value: object) -> bool:
    return type(value) is int and abs(value) <= _MAX_LONG


def boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"must be true or false, not {text!r}")
    return text.lower() == "true"


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"must be {' or '.join(choices)}, not {text!r}")
        return text.lower()

    return parse


def not_negative(text: str) -> int:
    return _number(text, 0)


def positive(text: str) -> int:
    return _number(text, 1)


def _duration_ms(text: str) -> int:
    """Parses a duration as Spark's configs have it, a number of ms or with a unit, or as its
    intervals have it, such as "1 hour 30 minutes"."""
    plain = text.lower().removeprefix("interval ")
    parts = re.findall(r"([0-9]{1,12})\s*([a-z]+|$)|(\S)", plain, re.ASCII)
    units = [_UNITS_US.get(unit, 0) if unit or len(parts) == 1 else 0 for _, unit, _ in parts]
    if not all(units) or not any(number.strip("0") for number, _, _ in parts):
        form = "must be a time such as 500ms, 15m, 1 hour or 1 hour 30 minutes"
        raise ValueError(f"{form}, not {text!r}")
    total_us = sum(int(number) * unit for (number, _, _), unit in zip(parts, units, strict=True))
    return max(total_us // 1000, 1)


def _number(text: str, least: int) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text, re.ASCII) or not least <= int(text) <= _MAX_LONG:
        raise ValueError(f"must be a whole number of at least {least}, not {text!r}")
    return int(text)
