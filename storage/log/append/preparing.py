"""Prepares appends before the log is locked: applies the topic's configs, but assigns no offsets or
positions yet."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ...config.kafka import TopicConfig
from ...errors import InvalidRecord
from ...format.layout import NO_TIMESTAMP, Codec, TimestampType
from ...format.messages.control import end_txn_record
from ...format.records.encoder import BatchPlan, encode
from ...format.records.record_columns import RecordColumns
from ...format.records.validate import ValidationResult, ValidationRules, check_records, check_sizes

_CODECS = {"uncompressed": Codec.NONE} | {codec.kafka_name: codec for codec in Codec if codec}
_TIMESTAMP_TYPES = {
    kind.kafka_name: kind for kind in (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)
}


def admit_rules(config: TopicConfig) -> ValidationRules:
    """Returns the topic configs that concern batches and records."""
    codec = _CODECS.get(config.compression_type)  # None: the producer's
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    return ValidationRules(
        max_message_bytes=config.max_message_bytes,
        is_compacted="compact" in config.cleanup_policy,
        timestamp_type=_TIMESTAMP_TYPES[config.message_timestamp_type],
        before_max_ms=config.message_timestamp_before_max_ms,
        after_max_ms=config.message_timestamp_after_max_ms,
        codec=codec,
        level=None if codec is None else levels.get(codec),
    )


def encoded(
    records: RecordColumns, plan: BatchPlan, rules: ValidationRules, now_ms: int
) -> ValidationResult:
    """Encodes records as batches according to `plan` and the topic's rules; offsets are not yet
    assigned.

    Raises InvalidRecord, InvalidTimestamp or MessageTooLarge if a record or batch is not allowed.
    """
    if not len(records):
        raise InvalidRecord("there are no records to append")
    check_records(records, rules, now_ms)
    plan = _planned(plan, rules)
    if rules.timestamp_type is TimestampType.LOG_APPEND_TIME:
        plan = replace(plan, append_time=now_ms)
    found = encode(records, plan)
    check_sizes(found.table, rules)
    return ValidationResult(found.data, found.table, plan.append_time)


@lru_cache(64)
def _planned(plan: BatchPlan, rules: ValidationRules) -> BatchPlan:
    """Adapts a plan to the topic's rules."""
    plan = replace(
        plan,
        base_offset=0,
        batch_bytes=min(plan.batch_bytes, rules.max_message_bytes),
        timestamp_type=rules.timestamp_type,
        append_time=NO_TIMESTAMP,
    )
    return plan if rules.codec is None else replace(plan, codec=rules.codec, level=rules.level)


def end_of_transaction(
    producer_id: int, producer_epoch: int, is_commit: bool, coordinator_epoch: int, now_ms: int
) -> ValidationResult:
    """Encodes the marker that ends a producer's transaction: a control batch of one record."""
    key, value = end_txn_record(is_commit, coordinator_epoch)
    plan = BatchPlan(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    found = encode(RecordColumns.from_values([value], [key], now_ms), plan)
    return ValidationResult(found.data, found.table)
