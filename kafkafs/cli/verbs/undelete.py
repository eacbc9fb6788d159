"""`kafkafs undelete`: restores recently deleted records and topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from ..params.arguments import log_dirs_argument, selection_argument
from ..params.configs import configs_option
from ..params.flags import human_option, json_option
from ..support import failures, output
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import Deletion, Selection

Found = tuple[list["Deletion"], int]


@click.command(
    cls=Verb,
    short_help="Restore recently deleted records and topics.",
    examples=[
        ("kafkafs undelete --list /data", "list what can be restored, and until when"),
        ("kafkafs undelete /data orders/0", "restore all deleted records of a partition"),
        ("kafkafs undelete --offset 600 /data orders/0", "restore the records from offset 600 on"),
        (
            "kafkafs undelete /data orders",
            "restore a deleted topic, or all deleted records of an existing one",
        ),
    ],
)
@log_dirs_argument
@selection_argument
@click.option(
    "-l", "--list", "lists", is_flag=True, help="List what can be restored; restore nothing."
)
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    metavar="N",
    help="With one partition: restore records from offset N on.",
)
@human_option
@configs_option
@json_option("one JSON object per deletion, one per line; times are in ms since 1970")
def command(
    log_dirs: tuple[str, ...],
    selection: Selection,
    lists: bool,
    offset: int | None,
    human: bool,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Restore the deleted records of the named topics and partitions in LOG_DIRS, and print what
    was restored. It does not matter whether rm, retention, DeleteRecords or the deletion of the
    topic deleted them.

    Deleted files are kept for file.delete.delay.ms (by default one minute). Because a log has no
    gaps, the records deleted last are restored first. A topic is restored as it was when it was
    deleted; records deleted before that, as by rm -r, are reported, and a second undelete restores
    them. Retention spares restored records for the same time; to keep them longer, change the
    topic's configs.

    If the directories are mounted with --rw, the mount restores the records. If not, deletions by
    processes that have exited can be undone, too, and are then kept for that time again. The exit
    code is 1 if something named could not be restored.
    """
    if not selection and not lists:
        raise click.UsageError("name a topic or TOPIC/PARTITION; --list shows what can be restored")
    if offset is not None and (lists or len(selection.names) != 1 or selection.names[0][1] is None):
        raise click.UsageError("--offset requires exactly one TOPIC/PARTITION and excludes --list")
    if lists:
        found, code = _listed(log_dirs, configs, selection)
    else:
        found, code = _undeleted(log_dirs, configs, selection, offset)
    if as_json:
        output.json_rows(found)
    elif lists and found:
        output.table(_rows(found, human), right=(1, 2, 3))
    elif not lists:
        output.binary().writelines(output.line(_is_back(each)) for each in found)
    return code


def _listed(log_dirs: tuple[str, ...], configs: tuple[Config, ...], selection: Selection) -> Found:
    """Returns what can be restored, and the exit code."""
    from kafkafs.storage import ListDeleted, list_deleted

    from ..support.driver import perform

    found: list[Deletion] = []
    request = ListDeleted(selection)
    code = perform(log_dirs, configs, request, list_deleted, found.append, asks_mount=True)
    return found, code


def _undeleted(
    log_dirs: tuple[str, ...],
    configs: tuple[Config, ...],
    selection: Selection,
    offset: int | None,
) -> Found:
    """Returns what was restored, and the exit code. Warns if records of a restored topic had been
    deleted before the topic itself."""
    from kafkafs.storage import Selection, Undelete, undelete

    from ..support.driver import perform

    found: list[Deletion] = []
    request = Undelete(selection, offset)
    code = perform(log_dirs, configs, request, undelete, found.append, finds_deleted=True)
    topics = tuple((each.topic, None) for each in found if each.partition < 0)
    if topics:
        for each in _listed(log_dirs, configs, Selection(topics))[0]:
            offsets = f"offsets {each.start_offset} to {each.end_offset - 1}"
            failures.warn(
                f"{each.path}: {offsets} were deleted before; run undelete again to restore them"
            )
    return found, code


def _is_back(deletion: Deletion) -> str:
    """Formats a restored deletion as a line of text."""
    if deletion.partition < 0:
        count = len(deletion.partitions)
        what = f"topic, with {count} partition{'' if count == 1 else 's'}, restored"
    else:
        what = f"offsets {deletion.start_offset} to {deletion.end_offset - 1} restored"
    when = _when(deletion)
    return f"{output.shown(deletion.path)}: {what} (deleted {when}: {deletion.cause})"


def _when(deletion: Deletion) -> str:
    known = deletion.deleted_at_ms >= 0
    return output.time_text(deletion.deleted_at_ms) if known else "at an unknown time"


def _until(deletion: Deletion) -> str:
    from kafkafs.storage import NEVER_MS

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
