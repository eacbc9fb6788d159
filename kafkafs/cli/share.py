"""The files that an installation puts below `share/`: man pages and completion scripts.

setup.py writes them when the package is built. The man pages are made from the help: a page for the
program and for each verb, `kafkafs-VERB.1`, as git names its own. click-man was tried instead: it
does not know lazily imported verbs, examples or preformatted paragraphs, and does not escape text
that roff would take for commands.
"""

from __future__ import annotations

import inspect
import os
import re
import textwrap
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

import click

from kafkafs import __version__

from . import main
from .support import failures, shells
from .support.verb import Verb

# Lines of roff.
Roff = Iterator[str]

#: Where each shell looks for the completion script of a program, below `share/`.
COMPLETIONS: Final = {
    "bash": "bash-completion/completions/kafkafs",
    "zsh": "zsh/site-functions/_kafkafs",
    "fish": "fish/vendor_completions.d/kafkafs.fish",
}

_EXIT_STATUS: Final = (
    ("0", "Success."),
    ("1", "The command failed, or found a fault in the log directories."),
    ("2", "Wrong usage: an argument or a config is invalid."),
    (str(failures.INTERRUPTED), "Interrupted by Ctrl-C."),
)
_ENVIRONMENT: Final = (
    (
        "KAFKAFS_KERNELS",
        "`c` requires compiled kernels, `python` runs them uncompiled, which is slow. By default,"
        " they are compiled if the installation has them.",
    ),
    ("TMPDIR", "The directory for temporary files (default: /tmp)."),
)
_SPARK_ENVIRONMENT: Final = (
    ("JAVA_HOME", "The Java that runs Spark (default: the one in PATH)."),
    ("PYSPARK_PYTHON", "The Python of the workers (default: the one that runs kafkafs)."),
)
_FILES: Final = (
    (
        "LOG_DIRS/.lock",
        "Kafka's lock on a log directory. It is held by a broker, a writable mount or a verb that"
        " writes.",
    ),
    (
        "LOG_DIRS/kafkafs.topics",
        "The topic configs that were set by kafkafs. They take precedence over the metadata of the"
        " cluster.",
    ),
)
_MOUNT_FILES: Final = (
    ("/dev/fuse", "The device that a mount needs. In a container it must be passed in."),
    ("/etc/fuse.conf", "With `user_allow_other`, other users than root may use -o allow_other."),
    ("/etc/fstab", "May list mounts of the type `fuse.kafkafs`; see the last example."),
    ("MOUNTPOINT/.kafkafs/log", "The last messages of the mount."),
)
_SEE_ALSO: Final = {
    "kafkafs-mount": ("fusermount3(1)", "fstab(5)", "fuse.conf(5)", "mount(8)"),
    "kafkafs-umount": ("fusermount3(1)", "umount(8)"),
    "kafkafs-explain": ("kafkafs-dump(1)", "kafkafs-why(1)"),
    "kafkafs-verify": ("kafkafs-dump(1)", "kafkafs-recover(1)"),
    "kafkafs-expire": ("kafkafs-why(1)", "kafkafs-undelete(1)"),
    "kafkafs-compact": ("kafkafs-why(1)",),
    "kafkafs-erase": ("kafkafs-history(1)", "kafkafs-purge(1)"),
}
_SPECIAL: Final = {"\\": r"\e", "^": r"\(ha", "~": r"\(ti", "`": r"\(ga", "'": r"\(aq"}


def files() -> dict[str, str]:
    """Returns the content of each file by its path below `share/`."""
    scripts = {path: shells.script(shell, main.cli) for shell, path in COMPLETIONS.items()}
    return {f"man/man1/{name}.1": page for name, page in man_pages()} | scripts


def man_pages() -> Iterator[tuple[str, str]]:
    """Yields the name of each man page of section 1, and its text in roff."""
    contexts = list(_contexts(main.cli, shells.PROGRAM, None))
    for context in contexts:
        name = _page_name(context)
        yield name, "\n".join((*_page(name, context), ""))


def _contexts(
    command: click.Command, name: str, parent: click.Context | None
) -> Iterator[click.Context]:
    """Yields a context for the command and each command below it."""
    context = click.Context(command, parent, name, **command.context_settings)
    yield context
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from _contexts(found, child, context)


def _page_name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _page(name: str, context: click.Context) -> Roff:
    command = context.command
    # The date of a reproducible build is given; see reproducible-builds.org.
    date = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    yield f'.TH {name.upper()} 1 "{time.strftime("%Y-%m-%d", date)}" "kafkafs {__version__}"'
    yield from (".SH NAME", rf"{_literal(name)} \- {_text(_summary(command))}")
    yield from (".SH SYNOPSIS", _synopsis(context))
    yield from (".SH DESCRIPTION", *_paragraphs(command.help or ""))
    yield from (".SH OPTIONS", *_options(context))
    if isinstance(command, click.Group):
        yield from _commands(context, command)
    yield from (".SH EXIT STATUS", *_definitions(_EXIT_STATUS))
    is_spark = name.startswith("kafkafs-spark")
    environment = chain(_ENVIRONMENT, _SPARK_ENVIRONMENT if is_spark else ())
    yield from (".SH ENVIRONMENT", *_definitions(environment))
    if context.parent is None or name == "kafkafs-mount":
        is_mount = context.parent is not None
        yield from (".SH FILES", *_definitions(_MOUNT_FILES if is_mount else _FILES))
    if isinstance(command, Verb):
        yield from (".SH EXAMPLES", *_examples(command))
    yield from (".SH SEE ALSO", ".nh", ",\n".join(_see_also(name, context)))


def _summary(command: click.Command) -> str:
    """Returns what the command does, as NAME has it: no capital, no full stop."""
    summary = (command.short_help or (command.help or "").partition(":")[0]).rstrip(".")
    return summary[:1].lower() + summary[1:]


def _synopsis(context: click.Context) -> str:
    pieces = context.command.collect_usage_pieces(context)
    arguments = " ".join(rf"\fI{_literal(piece)}\fR" for piece in pieces)
    return rf"\fB{_literal(context.command_path)}\fR {arguments}"


def _paragraphs(text: str) -> Roff:
    """Yields the paragraphs of a help text. One that begins with `\b` keeps its line breaks, as for
    click."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", inspect.cleandoc(text))):
        if number:
            yield ".PP"
        if paragraph.startswith("\b"):
            lines = paragraph.split("\n")[1:]
            yield from (".EX", *(_line(_literal(line)) for line in lines), ".EE")
        else:
            yield from _lines(_text(paragraph))


def _options(context: click.Context) -> Roff:
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            yield from (".TP", _flags(record[0]), *_lines(_text(record[1])))


def _flags(declaration: str) -> str:
    """Returns a declaration such as `-o, --output FILE`: flags in bold, what they take in
    italics."""
    return re.sub(
        r"[^\s,]+",
        lambda word: rf"\f{'B' if word[0].startswith('-') else 'I'}{_literal(word[0])}\fR",
        declaration,
    )


def _commands(context: click.Context, group: click.Group) -> Roff:
    yield ".SH COMMANDS"
    is_program = context.parent is None
    sections = main.SECTIONS if is_program else {"": group.list_commands(context)}
    for title, names in sections.items():
        if title:
            yield f".SS {_text(title)}"
        for name in names:
            command = group.get_command(context, name)
            assert command is not None
            page = f"{_page_name(context)}-{name}"
            yield from (
                ".TP",
                rf"\fB{_literal(page)}\fR(1)",
                *_lines(_text(command.short_help or "")),
            )


def _examples(verb: Verb) -> Roff:
    for number, (line, meaning) in enumerate(verb.examples):
        if number:
            yield ".PP"
        yield from _lines(_text(meaning[:1].upper() + meaning[1:]) + ":")
        yield from (".RS 4", ".EX", _line(_literal(line)), ".EE", ".RE")


def _see_also(name: str, context: click.Context) -> Iterator[str]:
    pages = [] if context.parent is None else [f"{_page_name(context.parent)}(1)"]
    if context.parent is not None and context.parent.parent is not None:
        pages.insert(0, f"{shells.PROGRAM}(1)")
    if context.parent is None:
        pages += [f"{name}-{verb}(1)" for verb in main.VERBS]
    for page in (*pages, *_SEE_ALSO.get(name, ())):
        title, section = page.rstrip(")").split("(")
        yield rf"\fB{_literal(title)}\fR({section})"


def _definitions(entries: Iterable[tuple[str, str]]) -> Roff:
    for term, meaning in entries:
        yield from (".TP", rf"\fB{_literal(term)}\fR", *_lines(_text(meaning)))


def _text(prose: str) -> str:
    """Escapes prose; what stands between backquotes, and options, are bold."""
    joined = " ".join(prose.split())
    parts = re.split(r"`([^`]+)`|(?<![\w-])(--?[a-z][\w-]*)", joined)
    plain, quoted, options = parts[::3], parts[1::3], parts[2::3]
    literal = [code or option for code, option in zip(quoted, options, strict=True)]
    marked = [*(rf"\fB{_literal(each)}\fR" for each in literal), ""]
    return "".join(chain.from_iterable(zip(map(_escaped, plain), marked, strict=True)))


def _literal(text: str) -> str:
    """Escapes text that is typed as it stands: a `-` in it is a minus sign, not a hyphen."""
    return _escaped(text).replace("-", r"\-")


def _escaped(text: str) -> str:
    escaped = "".join(_SPECIAL.get(character, character) for character in text)
    return re.sub(r"[^\x00-\x7f]", lambda found: rf"\[u{ord(found[0]):04X}]", escaped)


def _lines(text: str) -> Roff:
    """Yields a paragraph in lines."""
    width = 78  # roff fills the lines itself; these are for readers of the source
    wrapped = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return map(_line, wrapped)


def _line(text: str) -> str:
    """Protects a line that would begin with a command of roff."""
    return rf"\&{text}" if text.startswith((".", "'")) else text
