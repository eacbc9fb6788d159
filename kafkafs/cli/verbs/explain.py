"""`kafkafs explain`: prints every step of the lookup that `offset/N` or `time/T` makes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import click

from ..support.params import (complete_tree_path, json_option, log_dirs_argument, reading_options)
from ..support.verb import (Verb)
from ..support.words import (Config, plain_path)

if TYPE_CHECKING:
    from kafkafs.storage.log.read.log import (Log)
    from kafkafs.storage.log.read.transactions import (Isolation)
    from kafkafs.storage.log.read.view import (View)

    from ..support.lookup_report import (LookupReport)

_LINKS: Final = ("first", "last")


@click.command(
    cls=Verb,
    short_help="Show how a record is found, step by step.",
    examples=[
        (
            "kafkafs explain /data orders/0/offset/600   # or offset/first, offset/last",
            "show the segment, index entry, file position, batches walked and record",
        ),
        (
            "kafkafs explain /data orders/0/time/2018-05-15T11:45:18.288Z",
            "look up by time; also show a broker's answer if it differs",
        ),
        (
            "kafkafs explain --json /data orders/0/offset/600 | jq '.steps[] | .position?'",
            "print the file positions, for programs",
        ),
    ],
)
@log_dirs_argument
@click.argument(
    "path",
    callback=lambda ctx, parameter, value: plain_path(value or ""),
    shell_complete=complete_tree_path,
)
@reading_options
@json_option("the steps as one JSON object")
def command(
    log_dirs: tuple[str, ...],
    path: str,
    configs: tuple[Config, ...],
    isolation: str,
    as_json: bool,
) -> int:
    """Show how the record at PATH is found. PATH is TOPIC/PARTITION/offset/N, where N may also be
    "first" or "last", or TOPIC/PARTITION/time/T.

    A lookup by offset finds the segment with the greatest base offset at or below N and the
    greatest entry at or below N in its .index, and walks the batches from the position there.

    A lookup by time finds the first segment whose largest timestamp is at or after T and the
    greatest entry before T in its .timeindex, looks up that entry's offset in the .index, and walks
    the batches from there.

    A missing, stale or wrong index only makes the walk longer. The exit code is 1 if there is no
    such record; the steps show why.
    """
    from ..support.output import (binary, json_line, line)

    report = look_up(log_dirs, configs, isolation, path)
    out = binary()
    if as_json:
        out.write(json_line(report.as_json()))
    else:
        out.writelines(line(text) for text in report.lines())
    return 0 if report.found is not None else 1


def look_up(
    log_dirs: tuple[str, ...], configs: tuple[Config, ...], isolation: str, path: str
) -> LookupReport:
    """Runs the lookup of `path` and returns its steps."""
    from kafkafs.storage.io.retry import (look_again)
    from kafkafs.storage.log.read.transactions import (Isolation)

    from ..support.opening import (open_engine)

    question = parse(path)
    log = open_engine(log_dirs, configs).log(question.topic, question.partition)
    return look_again(lambda: _look_up(log, question, Isolation(isolation)))


def _look_up(log: Log, question: LookupRequest, level: Isolation) -> LookupReport:
    from kafkafs.storage.errors import (CorruptError, OffsetNotFound)
    from kafkafs.storage.log.read.explain import (explain_offset, explain_time)

    from ..support.lookup_report import (LookupReport)

    view = log.view()
    question = _resolved(question, view, level)
    report = LookupReport(
        topic=log.topic,
        partition=log.partition,
        path=log.path,
        start_offset=view.start_offset,
        end_offset=view.end_offset,
        isolation=level.value,
        offset=question.offset,
        timestamp=question.timestamp,
        steps=[],
    )
    try:  # the steps before an error remain in the report
        if report.by_time:
            report.steps.extend(explain_time(view, question.timestamp, level))
        else:
            report.steps.extend(explain_offset(view, question.offset, level))
    except (OffsetNotFound, CorruptError) as error:
        return replace(report, error=error)
    return report


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """The target of a lookup: an offset or a timestamp (ms), the other being -1, or a `link`,
    "first" or "last"."""

    topic: str
    partition: int
    offset: int = -1
    timestamp: int = -1
    link: str = ""


def _resolved(question: LookupRequest, view: View, level: Isolation) -> LookupRequest:
    """Returns the question with its link resolved to an offset. If no record is visible, that is
    the log start or end offset, at which the lookup fails."""
    if not question.link:
        return question
    is_last = question.link == "last"
    found = view.last(level) if is_last else view.first(level)
    if found is None:
        found = view.end_offset if is_last else view.start_offset
    return replace(question, offset=found)


def parse(path: str) -> LookupRequest:
    """Parses a path of the tree. Raises click.BadParameter if it has neither of the two forms."""
    from kafkafs.storage.clock import (milliseconds)

    match path.split("/"):
        case [topic, partition, "offset", name] if _is_number(partition):
            number = name.removesuffix(".json").removesuffix(".key")
            if _is_number(number):
                return LookupRequest(topic, int(partition), offset=int(number))
            if name in _LINKS:
                return LookupRequest(topic, int(partition), link=name)
        case [topic, partition, "time", name] if _is_number(partition):
            try:
                return LookupRequest(topic, int(partition), timestamp=milliseconds(name))
            except ValueError as error:
                raise click.BadParameter(str(error)) from None
    raise click.BadParameter(
        f"{path!r} is neither TOPIC/PARTITION/offset/N nor TOPIC/PARTITION/time/T"
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
