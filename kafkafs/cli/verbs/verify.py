"""`kafkafs verify`: checks the files of log directories against Kafka's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..params.arguments import log_dirs_argument, selection_argument
from ..params.configs import configs_option, tier_options
from ..params.flags import json_option
from ..params.times import no_as_of_option
from ..support import output
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import Selection


@click.command(
    cls=Verb,
    short_help="Check logs, indexes, snapshots and checkpoints.",
    examples=[
        ("kafkafs verify /data", "check everything"),
        ("kafkafs verify /data1,/data2 orders payments/0", "check a topic and one partition"),
        ("kafkafs verify --json /data | jq -r .file | sort | uniq -c", "count findings by file"),
    ],
)
@log_dirs_argument
@selection_argument
@configs_option
@tier_options
@json_option("one JSON object per finding, one per line; position is -1 if unknown")
@no_as_of_option("verify checks files as they are on the disk now")
def command(
    log_dirs: tuple[str, ...],
    selection: Selection,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Check every file in LOG_DIRS, or only of the named topics and partitions, against Kafka's
    rules: logs, indexes, snapshots, leader epochs, checkpoints; and the files of kafkafs itself.
    Print each violation with file and position, and exit with code 1 if there are any.

    All batches are read and decoded. Nothing is changed. A running broker may change files during
    the check. Traces of a crash are reported, too, although `kafkafs recover` would repair them.
    """
    from kafkafs.storage import Finding, Verify, VerifySummary, verify

    from ..support.driver import perform

    out = output.binary()
    count = 0

    def put(row: object) -> None:
        nonlocal count
        if isinstance(row, Finding):
            count += 1
            out.write(output.json_line(row.as_json()) if as_json else output.line(str(row)))
        elif isinstance(row, VerifySummary) and not as_json:
            wrong = f"{row.findings} findings" if row.findings else "nothing is wrong"
            out.write(output.line(f"{row.partitions} partitions: {wrong}"))

    code = perform(log_dirs, configs, Verify(selection), verify, put)
    return 1 if count else code
