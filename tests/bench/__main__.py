"""Runs the benchmarks and prints one table. See `tests/bench/run.sh --help`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.bench import (
    appending,
    avro_values,
    backing_up,
    commands,
    compacting,
    data,
    decoding,
    erasing,
    exporting,
    groups,
    lookups,
    machine,
    opening,
    querying,
    records,
    recovering,
    remote_reading,
    remote_scanning,
    removing,
    restoring,
    reviving,
    scanning,
    sinking,
    small_partitions,
    spreading,
    streaming,
    trial,
    writing,
)
from tests.bench.plan import Plan
from tests.bench.race import Failed, Outcomes
from tests.bench.table import JsonLines, Markdown, Plain, Row

ROWS: dict[int, Sequence[Callable[[Plan], Outcomes]]] = {
    1: [decoding.uncompressed],
    2: [decoding.compressed],
    3: [streaming.values],
    4: [streaming.json],
    5: [decoding.to_arrow, streaming.arrow],
    6: [records.cold],
    7: [records.listing],
    8: [opening.many_partitions, opening.report_of_many],
    9: [lookups.latency],
    10: [appending.from_memory],
    11: [appending.prebuilt],
    12: [appending.durable],
    13: [recovering.unclean],
    14: [recovering.many],
    15: [compacting.uncompressed],
    16: [compacting.compressed],
    17: [compacting.preview],
    18: [compacting.offset_map],
    19: [writing.append_json],
    20: [writing.read_beside_writers],
    21: [removing.oldest],
    22: [writing.key_values],
    23: [commands.dumps],
    24: [commands.verification],
    25: [commands.starts],
    26: [commands.partitions],
    27: [commands.first_byte],
    28: [commands.memory],
    31: [scanning.batch],
    32: [scanning.by_time],
    33: [scanning.against_kafka],
    34: [sinking.against_kafka],
    35: [spreading.compaction, spreading.planning],
    36: [groups.commits],
    37: [small_partitions.reading, small_partitions.planning],
    38: [reviving.against_copy],
    39: [restoring.against_producer],
    40: [erasing.against_compaction],
    42: [exporting.parquet],
    43: [avro_values.scan],
    44: [querying.against_parquet],
    45: [querying.against_kcat],
    46: [backing_up.against_copy],
    47: [remote_reading.in_bucket],
    48: [avro_values.lines],
    49: [remote_scanning.segments],
}


def main() -> int:
    options = _parser().parse_args()
    if options.clean:
        shutil.rmtree(data.cache(), ignore_errors=True)
        return 0
    plan = Plan(
        records=options.records,
        repetitions=options.repetitions,
        listed=options.listed,
        partitions=options.partitions,
        segments=options.segments,
        recovered=options.recovered,
        opened=options.opened,
        gibibytes=options.gibibytes,
        lookups=options.lookups,
        appended=options.appended,
        compacted=options.compacted,
        keys=options.keys,
        mapped=options.mapped,
        spread=options.spread,
        planned=options.planned,
        removed=options.removed,
        commits=options.commits,
        small=options.small,
    )
    # PySpark would start its workers with whatever `python3` the PATH has.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with ExitStack() as opened:
        if options.trial:
            opened.enter_context(trial.running())
        outputs = [sys.stdout]
        if options.output:
            outputs.append(opened.enter_context(options.output.open("w")))

        def write(text: str) -> None:
            for output in outputs:
                output.write(text)
                output.flush()

        table = (JsonLines if options.json else Markdown if options.markdown else Plain)(write)
        table.begin(machine.describe())
        rows = []
        for row in _measured(plan, options.rows):
            table.add(row)
            rows.append(row)
        table.end()
    if any(isinstance(row, Failed) for row in rows):
        return 2
    return int(any(row.passed is False for row in rows if not isinstance(row, Failed)))


def _measured(plan: Plan, rows: Sequence[int]) -> Iterator[Row]:
    """Yields the outcomes of the rows with these numbers. One that fails leaves a row, and a
    traceback on stderr."""
    for number, measure in ((row, measure) for row in rows for measure in ROWS[row]):
        try:
            yield from measure(plan)
        except (Exception, SystemExit) as error:  # noqa: BLE001  reported, and the next goes on
            traceback.print_exc()
            reason = str(error).strip().partition("\n")[0]
            work = f"{measure.__module__.rpartition('.')[2]}.{measure.__name__}"
            yield Failed(number, work, f"{type(error).__name__}: {reason}")


def _rows(text: str) -> list[int]:
    """Parses row numbers such as `1,3-5`."""
    chosen: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        chosen += range(int(low), int(high or low) + 1)
    if unknown := [row for row in chosen if row not in ROWS]:
        raise argparse.ArgumentTypeError(f"there is no row {unknown[0]}")
    return chosen


def _parser() -> argparse.ArgumentParser:
    plan = Plan()
    parser = argparse.ArgumentParser(
        prog="tests/bench/run.sh",
        description="Measures kafkafs against its peers. Exits with 1 if a target is missed, with "
        "2 if a row failed.",
    )
    add = parser.add_argument
    add("--rows", type=_rows, default=list(ROWS), metavar="LIST", help="such as 1,3-5 (all)")
    for name, text in (
        ("repetitions", "measurements of each contender, of which the median counts"),
        ("records", "records in the large logs"),
        ("listed", "records in the directory that is listed (row 7)"),
        ("opened", "files opened in one repetition (row 6)"),
        ("partitions", "partitions to open (row 8)"),
        ("segments", "segments in each of them (row 8)"),
        ("recovered", "MiB of the unclean segment (row 13)"),
        ("gibibytes", "size of the sparse log (row 9)"),
        ("lookups", "records looked up in it (row 9)"),
        ("appended", "records in one run of appends (rows 10, 11 and 39)"),
        ("compacted", "records in the logs to compact (rows 15 to 17 and 40)"),
        ("keys", "different keys in them"),
        ("mapped", "keys in the offset map (row 18)"),
        ("spread", "records to compact with Spark (row 35)"),
        ("planned", "GiB in each partition whose compaction is planned (row 35)"),
        ("removed", "names in one rm (row 21)"),
        ("commits", "offsets committed (row 36)"),
        ("small", "small partitions that Spark reads (row 37)"),
    ):
        default = getattr(plan, name)
        add(f"--{name}", type=int, default=default, metavar="N", help=f"{text} ({default:,})")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON object for each row")
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")
    add("--output", type=Path, metavar="FILE", help="also write the output to FILE")
    trial = "neither warm up nor wait for the machine to come to rest: the figures mean nothing"
    add("--trial", action="store_true", help=trial)
    add("--clean", action="store_true", help="remove the generated logs and exit")
    return parser


if __name__ == "__main__":
    sys.exit(main())
