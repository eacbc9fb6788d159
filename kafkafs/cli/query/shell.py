"""The shell of `kafkafs sql`: reads statements with history and completion, and runs them."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Final

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from kafkafs.sql.session import QueryError, Session
from kafkafs.storage import RECORD_SCHEMA, StorageError, printable

from ..support import failures
from ..support.output import aligned
from .running import Results, interruptible

_PROMPT, _MORE = "kafkafs> ", "    ...> "
_HELP: Final = """\
A statement of SQL may have several lines, and ends with a semicolon.
.tables [WORD]   the tables, or those with WORD in their names
.schema [TABLE]  the columns of a table, or those that every topic has
.help            this help
.exit            leave, as Ctrl-D does
Ctrl-C discards what is typed, or ends the query that runs."""
_COMMANDS: Final = (".exit", ".help", ".schema", ".tables")
# What is completed: the word before the cursor, quoted if it is the name of a topic.
_WORD: Final = re.compile(r'"?[\w.-]+$')
_PLAIN: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")


def run_shell(session: Session, results: Results) -> None:
    """Reads and runs statements until Ctrl-D or `.exit`. Errors are reported, and end nothing."""
    keywords = session.keywords()
    prompt: PromptSession[str] = PromptSession(
        history=_history(),
        completer=_Completer(session, keywords),
        complete_while_typing=False,
        multiline=True,
        key_bindings=_bindings(),
        prompt_continuation=_MORE,
    )
    # Ctrl-C just before the prompt leaves the coroutine of prompt_toolkit behind.
    warnings.filterwarnings("ignore", "coroutine 'Application.run_async' was never awaited")
    click.echo("Enter .help for help.")
    while True:
        try:
            text = prompt.prompt(_PROMPT).strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text.split()[:1] in ([".exit"], [".quit"]):
            return
        try:
            if text.startswith("."):
                _command(session, text)
            else:
                results.run(text)
        except KeyboardInterrupt:
            failures.warn("the query was interrupted")
        except (StorageError, OSError, failures.Failure) as error:
            failures.report(error)


def _command(session: Session, text: str) -> None:
    command, *arguments = text.rstrip(";").split()
    word = arguments[0] if arguments else ""
    if command == ".help":
        click.echo(_HELP)
    elif command == ".tables":
        for name in session.tables():
            if word.lower() in name.lower():
                click.echo(printable(name))
    elif command == ".schema":
        try:
            rows = interruptible(session, lambda: session.columns(word))
        except QueryError as error:
            raise failures.Failure(str(error)) from None
        for line in aligned(rows):
            click.echo(line)
    else:
        failures.warn(f"no such command {command}; .help lists them")


def _history() -> FileHistory:
    """Returns the history in the user's state directory, which only the user can read."""
    above = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = os.path.join(above, "kafkafs", "sql_history")
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600))
    os.chmod(path, 0o600)
    return FileHistory(path)


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def enter(event: KeyPressEvent) -> None:
        """Ends the input if it is a whole statement, a command, or empty."""
        buffer = event.current_buffer
        text = buffer.text.strip()
        if not text or text.startswith(".") or text.endswith(";"):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings


class _Completer(Completer):
    """Completes commands, words of SQL, tables and columns."""

    def __init__(self, session: Session, keywords: Iterable[str]) -> None:
        self._session = session
        self._words = [*RECORD_SCHEMA.names, *session.system_columns(), *keywords]

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        before = document.text_before_cursor
        found = _WORD.search(before)
        if found is None:
            return
        typed = found[0]
        if typed.startswith("."):
            names: Iterable[str] = _COMMANDS if before == typed else ()
        else:
            names = [*map(_quoted, self._session.tables()), *map(_column, self._words)]
        start = typed.strip('"').lower()
        for name in dict.fromkeys(names):
            if name.strip('"').lower().startswith(start):
                yield Completion(name, start_position=-len(typed))


def _quoted(table: str) -> str:
    return table if _PLAIN.fullmatch(table) else f'"{table}"'


def _column(name: str) -> str:
    return '"offset"' if name == "offset" else name
