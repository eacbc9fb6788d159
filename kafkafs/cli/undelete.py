"""`kafkafs undelete`: what was deleted a moment ago comes back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import click

from . import failures, output
from .params import (
    Choice,
    Setting,
    choice_argument,
    human_option,
    json_option,
    log_dirs_argument,
    settings_option,
)
from .verb import Verb

if TYPE_CHECKING:
    from kafkafs.storage.engine import Engine
    from kafkafs.storage.log.deletions import Deletion
    from kafkafs.storage.writable_engine import WritableEngine

    from .mounted_engine import MountedEngine

Found = tuple[list["Deletion"], int]


@click.command(
    cls=Verb,
    short_help="Bring back what was deleted a moment ago, or list it.",
    examples=[
        ("kafkafs undelete --list /data", "what can be brought back, and until when"),
        ("kafkafs undelete /data orders/0", "all records of a partition that are still there"),
        ("kafkafs undelete --offset 600 /data orders/0", "those from offset 600 on"),
        ("kafkafs undelete /data orders", "a deleted topic; or of each of its partitions, all"),
    ],
)
@log_dirs_argument
@choice_argument
@click.option("-l", "--list", "lists", is_flag=True, help="Bring nothing back, only tell.")
@click.option(
    "--offset", type=click.IntRange(min=0), metavar="N", help="Of one partition: from there on."
)
@human_option
@settings_option
@json_option("one JSON object a line for each deletion; times are milliseconds since 1970")
def command(
    log_dirs: tuple[str, ...],
    chosen: tuple[Choice, ...],
    lists: bool,
    offset: int | None,
    human: bool,
    settings: tuple[Setting, ...],
    as_json: bool,
) -> int:
    """Bring back what was deleted in LOG_DIRS of the topics and partitions named, by whatever it
    was deleted: rm, retention, DeleteRecords or the deletion of a topic. Print what came back.

    What is deleted is kept for file.delete.delay.ms, a minute unless the topic says otherwise; the
    records deleted last come back first, since a log has no gaps. A topic comes back as it was;
    what was deleted of it before, as rm -r does, is told, and comes back the next time. Retention
    leaves what came back alone for as long: for more, change the topic's settings. Where the
    directories are mounted with --rw the mount does it. Where they are not, what a process deleted
    that has ended counts, too, and is kept for that time once more. Exit 1 when something named
    could not be brought back.
    """
    if not chosen and not lists:
        raise click.UsageError("name a topic or TOPIC/PARTITION; --list tells what there is")
    if offset is not None and (lists or len(chosen) != 1 or chosen[0][1] is None):
        raise click.UsageError("--offset only goes with one TOPIC/PARTITION, and not with --list")
    found, code = _do(log_dirs, chosen, lists, offset, settings)
    if as_json:
        output.binary().writelines(output.json_line(each.as_json()) for each in found)
    elif lists and found:
        lines = output.aligned(list(_rows(found, human)), right=(1, 2, 3))
        output.binary().writelines(map(output.line, lines))
    elif not lists:
        output.binary().writelines(output.line(_is_back(each)) for each in found)
    return code


def _do(
    log_dirs: tuple[str, ...],
    chosen: Sequence[Choice],
    lists: bool,
    offset: int | None,
    settings: tuple[Setting, ...],
) -> Found:
    """What can come back, or came back, and the exit code."""
    from kafkafs.storage.undeleting import found_deletions

    from .mounted_engine import change, holding
    from .opening import open_engine

    def here(engine: WritableEngine) -> Found:
        found, code = _each(engine, chosen, offset)
        _tell_more(found, engine.deleted())
        return found, code

    def there(mounted: MountedEngine) -> Found:
        return _of_mount(mounted, chosen, lists, offset)

    mounted = holding(log_dirs, settings)
    if mounted is not None:
        return there(mounted)
    with closing(open_engine(log_dirs, settings)) as looking:
        if lists:
            return _listed(found_deletions(looking), chosen), 0
        refused = _refused(looking, chosen, offset)
    if len(refused) == len(chosen):  # a command that fails on its arguments changes nothing
        return [], max(map(failures.tell, refused))
    return change(log_dirs, settings, here, there, finds_deleted=True)


def _refused(engine: Engine, chosen: Sequence[Choice], offset: int | None) -> list[Exception]:
    """Why what is named cannot be brought back; nothing of what can be."""
    from kafkafs.storage.errors import StorageError
    from kafkafs.storage.undeleting import refuse_undelete

    refused: list[Exception] = []
    for topic, number in chosen:
        try:
            refuse_undelete(engine, topic, number, offset)
        except (StorageError, OSError) as error:
            refused.append(error)
    return refused


def _listed(deletions: Iterable[Deletion], chosen: Sequence[Choice]) -> list[Deletion]:
    return [
        each
        for each in deletions
        if not chosen or (each.topic, each.partition) in chosen or (each.topic, None) in chosen
    ]


def _each(engine: WritableEngine, chosen: Sequence[Choice], offset: int | None) -> Found:
    """Brings back each, whatever becomes of the others."""
    from kafkafs.storage.errors import StorageError

    found: list[Deletion] = []
    code = 0
    for topic, number in chosen:
        try:
            found += engine.undelete(topic, number, offset)
        except (StorageError, OSError) as error:
            code = failures.tell(error)
    return found, code


def _of_mount(
    mounted: MountedEngine, chosen: Sequence[Choice], lists: bool, offset: int | None
) -> Found:
    from kafkafs.storage.log.deletions import Deletion

    from .mounted_engine import words

    if lists:
        rows, code = mounted.each(f"deleted {words(chosen)}")
        return [Deletion.of_json(row) for row in rows], code
    found: list[Deletion] = []
    code = 0
    for choice in chosen:
        start = "" if offset is None else f" {offset}"
        try:
            rows, failed = mounted.each(f"undelete {words([choice])}{start}")
        except failures.Failure as failure:
            rows, failed = [], failures.tell(failure)
        found += [Deletion.of_json(row) for row in rows]
        code = failed or code
    _tell_more(found, map(Deletion.of_json, mounted.each("deleted")[0]))
    return found, code


def _tell_more(back: Sequence[Deletion], deletions: Iterable[Deletion]) -> None:
    """A topic that came back may lack what was deleted of it before."""
    topics = {each.topic for each in back if each.partition < 0}
    for each in deletions:
        if each.topic in topics:
            offsets = f"offsets {each.start_offset} to {each.end_offset - 1}"
            failures.warn(f"{each.path}: {offsets} were deleted before; undelete brings them back")


def _is_back(deletion: Deletion) -> str:
    """A line for people."""
    if deletion.partition < 0:
        count = len(deletion.partitions)
        what = f"topic, with {count} partition{'' if count == 1 else 's'}, is back"
    else:
        what = f"offsets {deletion.start_offset} to {deletion.end_offset - 1} are back"
    when = _when(deletion)
    return f"{output.shown(deletion.path)}: {what} (deleted {when}: {deletion.cause})"


def _when(deletion: Deletion) -> str:
    known = deletion.deleted_at_ms >= 0
    return output.time_text(deletion.deleted_at_ms) if known else "at an unknown time"


def _until(deletion: Deletion) -> str:
    from kafkafs.storage.log.deletions import NEVER_MS

    never = deletion.until_ms == NEVER_MS
    return "purge" if never else output.time_text(deletion.until_ms)


def _rows(found: Iterable[Deletion], human: bool) -> Iterator[tuple[str, ...]]:
    yield "WHAT", "FIRST OFFSET", "LAST", "SIZE", "DELETED", "BY", "UNTIL"
    for each in found:
        is_topic = each.partition < 0
        yield (
            output.shown(each.path),
            "-" if is_topic else str(each.start_offset),
            "-" if is_topic else str(each.end_offset - 1),
            output.size_text(each.size, human),
            output.time_text(each.deleted_at_ms),
            str(each.cause),
            _until(each),
        )
