"""The program `kafkafs`: dispatches to its verbs and maps errors to exit codes.

A verb's module is imported only when the verb is used, and it imports its dependencies only when it
runs, so that `kafkafs --version` does not wait for numpy, nor `kafkafs ls` for pyarrow.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections.abc import MutableMapping, Sequence
from typing import Any, Final

import click

from kafkafs.mount.session.file_limit import raise_file_limit
from kafkafs.storage import did_you_mean

from . import installation
from .support import failures, progress, shells
from .support.verb import debug_option

# Maps each verb to the module that defines it, as `command`; in the order of the help.
VERBS: Final = {
    "mount": "mount",
    "umount": "umount",
    "ls": "ls",
    "cat": "cat",
    "stat": "stat",
    "explain": "explain",
    "history": "history",
    "dump": "dump",
    "groups": "groups",
    "cluster": "cluster",
    "schemas": "schemas",
    "sql": "sql",
    "topic": "topic",
    "append": "append",
    "expire": "expire",
    "compact": "compact",
    "erase": "erase",
    "purge": "purge",
    "undelete": "undelete",
    "why": "why",
    "recover": "recover",
    "revive": "revive",
    "verify": "verify",
    "diff": "diff",
    "report": "report",
    "restore": "restore",
    "backup": "backup",
    "export": "export",
    "import": "import_",
    "transactions": "transactions",
    "spark": "spark",
    "completion": "completion",
}
# Names that verbs had in earlier versions.
_FORMER: Final = {"retain": "expire"}
#: The verbs that can change log directories.
WRITING: Final = frozenset(
    (
        *("mount", "topic", "append", "expire", "compact", "erase", "purge", "undelete"),
        *("recover", "revive", "transactions", "import", "spark"),
    )
)
#: The verbs that open no log directory.
OTHER: Final = frozenset(("umount", "completion"))
#: The verbs in sections, as the help lists them.
SECTIONS: Final = {
    "Verbs that change no log": [name for name in VERBS if name not in WRITING | OTHER],
    "Verbs that write": [name for name in VERBS if name in WRITING],
    "Other verbs": [name for name in VERBS if name in OTHER],
}


class Program(click.Group):
    """The command `kafkafs`: imports the requested verb and exits with its code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the verbs that change no log, those that can, and the others in sections."""
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self._short_help(ctx, name)) for name in verbs])

    def _short_help(self, ctx: click.Context, name: str) -> str:
        command = self.get_command(ctx, name)
        assert command is not None
        return command.get_short_help_str(limit=100)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"kafkafs.cli.verbs.{VERBS[cmd_name]}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in VERBS and not name.startswith("-") and not ctx.resilient_parsing:
            hint = f"; did you mean {_FORMER[name]}?" if name in _FORMER else ""
            hint = hint or did_you_mean(name, VERBS) or f"; the verbs are {', '.join(VERBS)}"
            ctx.fail(f"No such verb {name!r}{hint}")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **extra: Any) -> Any:
        progress.guard_output()
        raise_file_limit()
        extra.update(prog_name=shells.PROGRAM, complete_var=shells.COMPLETE_VARIABLE)
        extra.update(standalone_mode=False)
        try:
            code = super().main(*args, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            code = error.exit_code
        except click.UsageError as error:
            click.echo(failures.usage_line(error), err=True)
            code = error.exit_code
        except failures.Failure as error:
            click.echo(error.line(), err=True)
            code = error.exit_code
        except click.Abort:
            code = failures.INTERRUPTED
        # Python would look for reference cycles in all modules before it exits, which takes a tenth
        # of the time of a short verb.
        gc.freeze()
        sys.exit(code)

    def _main_shell_completion(
        self, ctx_args: MutableMapping[str, Any], prog_name: str, complete_var: str | None = None
    ) -> None:
        shells.register()
        super()._main_shell_completion(ctx_args, prog_name, complete_var)


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[debug_option()],
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=installation.show_version,
    help="Show the version, how this installation computes, and its extras.",
)
def cli() -> None:
    """Read a Kafka log directory as files: topics and partitions are directories, and every record
    is a file. Write to a log directory while no broker is running on it.

    LOG_DIRS is the broker's log.dirs: one directory, or several separated by commas. They may
    belong to a running or stopped broker or be a copy. Reading changes nothing and takes no lock.
    Verbs that write take Kafka's lock on the directories, except with --dry-run or --list, for
    `topic list`, and for a mount without --rw.

    \b
      kafkafs ls /data                          list the topics
      kafkafs cat /data orders/0/offset/600     print the value of one record
      kafkafs mount /data /mnt/kafka            show the same tree to every program
      kafkafs VERB --help                       describe a verb, with examples
    """


def main() -> None:
    """Runs the program `kafkafs`."""
    if called_by_mount_fuse(sys.argv[1:]):
        importlib.import_module("kafkafs.cli.mount_helper").main()
    # On import, numpy's linear algebra library would start threads, which takes longer than most
    # verbs run; nothing here uses it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # As in cat and ls, a reader that closes the pipe early (`| head -1`) ends the verb silently.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    cli()


def called_by_mount_fuse(arguments: Sequence[str]) -> bool:
    """Returns whether `mount -t fuse.kafkafs` started the program: mount.fuse3 runs the program
    named after the filesystem subtype, with the source as first argument. No verb begins with a
    slash."""
    return bool(arguments) and arguments[0].startswith("/")
