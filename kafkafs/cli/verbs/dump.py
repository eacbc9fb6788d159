"""`kafkafs dump`: prints log files, indexes and snapshots as kafka-dump-log does."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from kafkafs import __version__

from ..params.paths import ReadablePath, split_paths
from ..params.times import no_as_of_option
from ..support import failures, output
from ..support.verb import Verb

if TYPE_CHECKING:
    from kafkafs.storage import Dump


@click.command(
    cls=Verb,
    short_help="Print log files, indexes and snapshots like kafka-dump-log.",
    examples=[
        ("kafkafs dump /data/orders-0/00000000000000000000.log", "print one line per batch"),
        (
            "kafkafs dump --print-data-log /data/orders-0/*.log",
            "print one line per batch and per record",
        ),
        (
            "kafkafs dump --index-sanity-check /data/orders-0/*index",
            "check whether a broker would rebuild the indexes",
        ),
        (
            "kafkafs dump /data/orders-0/*.log | grep 'isvalid: false'",
            "find batches with a wrong checksum",
        ),
        (
            "kafkafs dump --print-data-log /data/__cluster_metadata-0/*.log | grep LeaderChange",
            "show who led the quorum, and when",
        ),
        (
            "kafkafs dump --cluster-metadata-decoder /data/bootstrap.checkpoint",
            "show the features with which the directory was formatted",
        ),
        (
            "kafkafs dump --offsets-decoder /data/__consumer_offsets-7/*.log",
            "show committed offsets and group members",
        ),
    ],
)
@click.version_option(__version__, "--version", message="kafkafs %(version)s")
@click.argument("files", metavar="FILE...", nargs=-1, type=ReadablePath())
@click.option(
    "--files",
    "more",
    metavar="FILE,...",
    callback=split_paths,
    help="Dump these files, too; for compatibility with kafka-dump-log.",
)
@click.option("--print-data-log", is_flag=True, help="Print a line per record, with key and value.")
@click.option(
    "--deep-iteration", is_flag=True, help="Print a line per record, without key and value."
)
@click.option("--skip-record-metadata", is_flag=True, help="Print only keys and values of records.")
@click.option(
    "--max-bytes",
    metavar="BYTES",
    type=click.IntRange(min=0),
    help="Read at most this much of each log; omit a batch that crosses the limit.",
)
@click.option(
    "--max-message-size",
    metavar="BYTES",
    type=click.IntRange(min=1),
    default=128 << 20,
    show_default=True,
    help="Treat a larger batch, stored or decompressed, as damage.",
)
@click.option(
    "--verify-index-only", is_flag=True, help="Check indexes against their log; print no entries."
)
@click.option(
    "--index-sanity-check",
    is_flag=True,
    help="Only run the index checks of a broker's startup; print no entries.",
)
@click.option(
    "--offsets-decoder",
    "topics",
    flag_value="__consumer_offsets",
    multiple=True,
    help="Decode records of __consumer_offsets (commits, groups) as JSON.",
)
@click.option(
    "--transaction-log-decoder",
    "topics",
    flag_value="__transaction_state",
    multiple=True,
    help="Decode records of __transaction_state.",
)
@click.option(
    "--cluster-metadata-decoder",
    "topics",
    flag_value="__cluster_metadata",
    multiple=True,
    help="Decode records of __cluster_metadata and its snapshots.",
)
@click.option(
    "--share-group-state-decoder",
    "topics",
    flag_value="__share_group_state",
    multiple=True,
    help="Decode records of __share_group_state.",
)
@click.option(
    "--remote-log-metadata-decoder",
    "topics",
    flag_value="__remote_log_metadata",
    multiple=True,
    help="Decode records of __remote_log_metadata (segments in tiered storage).",
)
@no_as_of_option(
    "dump prints files as they are on the disk now; `kafkafs cat --at TIME LOG_DIRS"
    " TOPIC/PARTITION/records.jsonl` prints the records of a time"
)
def command(
    files: tuple[str, ...],
    more: tuple[str, ...],
    print_data_log: bool,
    deep_iteration: bool,
    skip_record_metadata: bool,
    max_bytes: int | None,
    max_message_size: int,
    verify_index_only: bool,
    index_sanity_check: bool,
    topics: tuple[str, ...],
) -> int:
    """Print each FILE line for line as kafka-dump-log does: a segment's .log, .index, .timeindex or
    .txnindex, a producer .snapshot, or a .checkpoint of the metadata log, also the
    bootstrap.checkpoint in a log directory. No broker and no other file of the directory is needed.

    Records are printed whole, as kafka-dump-log does: those of __cluster_metadata include the salts
    and keys of SCRAM users, which `kafkafs cluster` never shows.

    Damage, and index entries that do not match their log, are reported on stderr with exit code 1;
    printing continues after the damage. Offset gaps, as in a compacted log, are reported, too.
    """
    from kafkafs.storage import DECODERS, Dump, DumpOptions, TextDecoder

    from ..support.opening import for_each

    paths = (*files, *more)
    if not paths:
        raise click.UsageError("Missing argument 'FILE...'.")
    if len(set(topics)) > 1:
        raise click.UsageError("Only one decoder can be used at a time.")
    contents = print_data_log or bool(topics)
    options = DumpOptions(
        deep=deep_iteration or contents,
        contents=contents,
        metadata=not skip_record_metadata,
        max_bytes=max_bytes,
        prints_entries=not verify_index_only,
        is_sanity_check=index_sanity_check,
        max_batch_bytes=max_message_size,
        decoder=DECODERS[topics[0]]() if topics else TextDecoder(),
    )
    dump = Dump(options)
    code = for_each(paths, lambda path: _print(dump, path))
    for found in (dump.complaints, dump.gaps):
        for heading, lines in found.items():
            click.echo("\n".join([heading, *lines]), err=True)
    return 1 if dump.complaints else code


def _print(dump: Dump, path: str) -> None:
    from kafkafs.storage import (
        SegmentGone,
        absolute_path,
        find_segment,
        is_known,
        open_directory,
    )

    folder, name = os.path.split(absolute_path(path))
    if os.path.isdir(path):
        raise failures.Failure(f"{path}: is a directory; name the files in it")
    directory = open_directory(folder)
    try:
        directory.stat(name)
    except SegmentGone:
        raise failures.Failure(f"{path}: no such file") from None
    found = find_segment(folder, name)
    if found is not None:
        directory, name = found
    elif not is_known(name):
        kinds = ".log, .index, .timeindex, .txnindex, .snapshot or .checkpoint"
        raise failures.Failure(f"{path}: unknown file, not a {kinds} of a log directory")
    with output.of_records() as out:
        out.write(output.line(f"Dumping {path}"))
        for piece in dump.text(directory, name, path):
            out.write(piece)
