"""The base class of all verbs: `--debug`, examples in the help, error handling."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click

from . import failures, output

# A command line and what it does.
Example = tuple[str, str]

_DEBUG: Final = "kafkafs.debug"


class Verb(click.Command):
    """A command of kafkafs, whose help ends with examples.

    The function returns the exit code, or None for 0. An uncaught error ends the program with one
    line on stderr (see `failures.py`), preceded by a traceback with `--debug`. `reads_logs`: the
    verb needs the engine, and warns if its kernels are not compiled.
    """

    def __init__(
        self,
        *args: Any,
        examples: Sequence[Example] = (),
        reads_logs: bool = True,
        **attrs: Any,
    ) -> None:
        super().__init__(*args, **attrs)
        self.examples = examples
        self.reads_logs = reads_logs
        self.params.append(debug_option())

    def invoke(self, ctx: click.Context) -> Any:
        try:
            if self.reads_logs:
                _warn_if_uncompiled()
            code = super().invoke(ctx)
            output.finish()
            return code
        except (click.ClickException, click.exceptions.Exit, click.Abort) as ending:
            if isinstance(ending, failures.Failure):
                _show_traceback(ctx)
            raise
        except KeyboardInterrupt:
            raise click.exceptions.Exit(failures.INTERRUPTED) from None
        except Exception as error:
            _show_traceback(ctx)
            raise failures.failure(error) from error

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            formatter.write("\n".join(_example_lines(self.examples, formatter.current_indent)))
            formatter.write("\n")


def _example_lines(examples: Iterable[Example], indent: int) -> Iterable[str]:
    for line, meaning in examples:
        yield f"{'':{indent}}{line}"
        yield f"{'':{indent}}    {meaning}"


def _warn_if_uncompiled() -> None:
    from kafkafs.storage import warn_if_uncompiled

    warn_if_uncompiled(failures.warn)


def debug_option() -> click.Option:
    """Returns the option `--debug`, which may be anywhere on the command line."""
    return click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        callback=_note_debug,
        help="Print a traceback on errors.",
    )


def _note_debug(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    ctx.meta[_DEBUG] = ctx.meta.get(_DEBUG, False) or value


def _show_traceback(ctx: click.Context) -> None:
    if ctx.meta.get(_DEBUG):
        traceback.print_exc()
