"""Appends to existing topics until it is killed: `python -m tests.broker.endless LOG_DIR`.

It appends numbered records durably, as an idempotent producer, to `rolled`, and to a transaction in
partition 2 of `transactions` that is never ended. After each append it prints the number of records
that are durable.
"""

from __future__ import annotations

import itertools
import sys
import time

from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.transactions.producer import TransactionalProducer

AT_ONCE = 20


def main(log_dir: str) -> None:
    engine = LogManager(log_dir, {"internal.segment.bytes": "20000"})
    producer, lost = TransactionalProducer(engine), TransactionalProducer(engine)
    lost.begin()
    lost.append("transactions", 2, [SimpleRecord(time.time_ns() // 1_000_000, b"k", b"lost")])
    for first in itertools.count(0, AT_ONCE):
        now = time.time_ns() // 1_000_000
        records = [
            SimpleRecord(now, b"k", b"%d " % number + b"x" * 100)
            for number in range(first, first + AT_ONCE)
        ]
        producer.append("rolled", 0, records, durable=True)
        print(first + AT_ONCE, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
