"""`kafkafs schemas`: lists and exports the schemas of a schema registry from its topic."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import click

from kafkafs.places import log_dir_around
from kafkafs.storage import printable

from ..params.arguments import log_dirs_argument, subjects_argument
from ..params.configs import configs_option
from ..params.flags import json_option
from ..params.paths import LocalPath, split_paths
from ..params.times import as_of_option
from ..support import failures, output
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import ExportedFile, ListedSchema

# Also accepted before LOG_DIRS.
_EXPORT: Final = "export"
_HEADS: Final = ("SUBJECT", "VERSION", "ID", "TYPE", "DELETED", "REFERENCES")
_USAGE_HEAD: Final = "RECORDS"
_EXECUTABLE: Final = 0o777


@click.command(
    cls=Verb,
    short_help="List the schemas of a schema registry, also deleted ones; export them.",
    examples=[
        ("kafkafs schemas /data", "list all versions of all subjects"),
        ("kafkafs schemas --deleted --text /data", "print the text of each deleted schema"),
        ("kafkafs schemas --usage /data orders-value", "count the records that use each version"),
        (
            "kafkafs schemas --json /data | jq -r 'select(.id == 7).schema'",
            "print the schema with an id",
        ),
        ("kafkafs schemas export /data -o /schemas", "export all for another registry"),
        ("sh /schemas/import.sh http://localhost:8081", "register them there, with the same ids"),
    ],
)
@log_dirs_argument
@subjects_argument
@click.option("--deleted", is_flag=True, help="Only deleted versions (exported: these, too).")
@click.option("--usage", is_flag=True, help="Count the records that use each schema: reads all.")
@click.option("--text", is_flag=True, help="Print the schemas themselves.")
@click.option(
    "-o",
    "--output",
    "target",
    type=LocalPath(file_okay=False),
    metavar="DIR",
    help="Export to this directory, which is new or empty.",
)
@as_of_option
@configs_option
@json_option("one JSON object per version, with the registry's names, and where it is on the disk")
def command(
    log_dirs: tuple[str, ...],
    subjects: tuple[str, ...],
    deleted: bool,
    usage: bool,
    text: bool,
    target: str | None,
    at: int | None,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """List the schemas that a Confluent schema registry keeps in its topic (_schemas, or that of
    -c kafkafs.schemas.topic=NAME), of each SUBJECT or of all: the registry itself is not needed.
    DELETED is "soft" if the registry still serves the schema by its id, and "hard" if it is gone
    from the registry and only still on the disk, until compaction.

    `kafkafs schemas export LOG_DIRS -o DIR` writes requests that register the versions in another,
    empty registry with the same ids, and DIR/import.sh, which sends them with curl. What a SUBJECT
    refers to is exported with it.

    Damage and contradictions in the topic are reported on stderr, with exit code 1, and the rest is
    shown.
    """
    if target is not None:
        if usage or text or as_json:
            raise click.UsageError("--usage, --text and --json are not for an export (-o)")
        log_dirs, subjects = _without_the_word(log_dirs, subjects)
        return _export(log_dirs, configs, at, subjects, deleted, target)
    if text and (as_json or usage):
        raise click.UsageError("--text prints only the schemas: omit --json and --usage")
    return _list(log_dirs, configs, at, subjects, deleted, usage, text, as_json)


def _without_the_word(
    log_dirs: tuple[str, ...], subjects: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Accepts `export LOG_DIRS`, too."""
    if log_dirs != (_EXPORT,) or not subjects:
        return log_dirs, subjects
    ctx = click.get_current_context()
    return split_paths(ctx, ctx.command.params[0], subjects[0]), subjects[1:]


def _list(
    log_dirs: tuple[str, ...],
    configs: tuple[Config, ...],
    at: int | None,
    subjects: tuple[str, ...],
    deleted: bool,
    usage: bool,
    text: bool,
    as_json: bool,
) -> int:
    from kafkafs.storage import ListSchemas, list_schemas

    from ..support.driver import perform

    found: list[ListedSchema] = []
    request = ListSchemas(subjects, only_deleted=deleted, with_usage=usage)
    code = perform(log_dirs, configs, request, list_schemas, found.append, at=at)
    if as_json:
        output.json_rows(found)
    elif text:
        with output.of_records() as out:
            for each in found:
                out.write(each.version.schema.text.encode("utf-8", "surrogatepass").rstrip(b"\n"))
                out.write(b"\n")
    elif found:
        output.table(_rows(found, usage), right=(1, 2))
    elif not code:
        failures.warn(f"no {'deleted ' * deleted}schemas are recorded in these directories")
    return code


def _rows(found: Iterable[ListedSchema], usage: bool) -> Iterator[tuple[str, ...]]:
    yield (*_HEADS, _USAGE_HEAD) if usage else _HEADS
    for each in found:
        version = each.version
        references = (f"{r.subject}/{r.version}" for r in version.schema.references)
        cells = (
            *(printable(version.subject), str(version.version), str(version.schema.id)),
            *(printable(str(version.schema.type)), str(version.deletion).replace("none", "-")),
            printable(", ".join(references)) or "-",
        )
        uses = (f"{use.topic} {use.field} {use.records}" for use in each.uses or ())
        yield (*cells, ", ".join(uses) or "-") if usage else cells


def _export(
    log_dirs: tuple[str, ...],
    configs: tuple[Config, ...],
    at: int | None,
    subjects: tuple[str, ...],
    deleted: bool,
    target: str,
) -> int:
    from kafkafs.storage import ExportSchemas, export_schemas

    from ..support.driver import perform

    around = log_dir_around(target, log_dirs)
    if around is not None:
        raise click.UsageError(f"{target} is in the log directory {printable(around)}")
    if os.path.isdir(target) and os.listdir(target):
        raise click.UsageError(f"{target} is not empty; choose a new directory")
    files: list[ExportedFile] = []
    request = ExportSchemas(subjects, with_deleted=deleted)
    code = perform(log_dirs, configs, request, export_schemas, files.append, at=at)
    if not any(file.is_schema for file in files):
        if not code:
            failures.warn("no schemas are recorded in these directories: nothing is written")
        return code
    for file in files:
        path = os.path.join(target, file.name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        output.replace_file(path, file.data)
        if file.is_executable:
            os.chmod(path, os.stat(path).st_mode | (_EXECUTABLE & 0o111))
    return code
