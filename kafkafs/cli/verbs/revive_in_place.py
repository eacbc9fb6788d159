"""`kafkafs revive --in-place`: makes topics known to the stopped node that has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from ..support import failures, output
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import MetadataRecordRow, RegisteredPartition, Selection


# What --in-place may be given with.
_OPTIONS: Final = frozenset(
    ("log_dirs", "selection", "in_place", "dry_run", "configs", "human", "as_json")
)


def refuse_with_in_place() -> None:
    """Raises UsageError for options that are for a new directory."""
    ctx = click.get_current_context()
    for option in ctx.command.params:
        name = option.name or ""
        is_given = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and name not in _OPTIONS:
            raise click.UsageError(
                f"--in-place makes no new directory, so {option.opts[-1]} has no use"
            )


def revive_in_place(
    log_dirs: tuple[str, ...],
    selection: Selection,
    configs: tuple[Config, ...],
    *,
    dry_run: bool,
    human: bool,
    as_json: bool,
) -> int:
    """Registers topics, and returns the exit code. Raises UsageError for a name that is not a
    topic's."""
    from kafkafs.storage import Register, register

    from ..support.driver import perform

    for topic, number in selection.names:
        if number is not None:
            raise click.UsageError(
                f"--in-place registers whole topics: name {topic}, not {topic}/{number}"
            )
    request = Register(tuple(topic for topic, _ in selection.names), dry_run)
    rows = _Rows(human, as_json)
    code = perform(log_dirs, configs, request, register, rows.put)
    rows.finish()
    return code


class _Rows:
    """Shows the rows of a run."""

    def __init__(self, human: bool, as_json: bool) -> None:
        self._human, self._as_json = human, as_json
        self._partitions: list[RegisteredPartition] = []
        self._records: list[MetadataRecordRow] = []

    def put(self, row: Any) -> None:
        from kafkafs.storage import MetadataRecordRow, RegisteredPartition

        if self._as_json:
            output.binary().write(output.json_line(row.as_json()))
        elif isinstance(row, RegisteredPartition):
            self._partitions.append(row)
        elif isinstance(row, MetadataRecordRow):
            self._records.append(row)
        else:
            failures.warn(row.note)

    def finish(self) -> None:
        if self._partitions:
            output.table(self._partition_rows(), right=range(1, 5))
        if self._records:
            output.binary().write(b"\n")
            output.binary().writelines(output.json_line(row.as_json()) for row in self._records)

    def _partition_rows(self) -> Iterator[Sequence[str]]:
        yield "TOPIC", "PARTITION", "START", "END", "BYTES", "TOPIC ID", "DIRECTORY"
        for row in self._partitions:
            yield (
                output.shown(row.topic),
                str(row.partition),
                str(row.start_offset),
                str(row.end_offset),
                output.size_text(row.size, self._human),
                row.topic_id,
                output.shown(row.directory) or "-",
            )
