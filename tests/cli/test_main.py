"""Tests of what all verbs share: help, version, errors, exit codes and lazy imports."""

from __future__ import annotations

import ast
import errno
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import click
import crc32c
import pytest

import kafkafs as package
from kafkafs.cli import verbs as verb_modules
from kafkafs.cli.installation import EXTRAS
from kafkafs.cli.main import OTHER, VERBS, WRITING, called_by_mount_fuse, cli
from kafkafs.cli.support import failures
from kafkafs.cli.support.verb import Verb
from kafkafs.mount.vfs import errnos
from kafkafs.storage import errors
from kafkafs.storage.format import kernels
from kafkafs.storage.operations.request import Request
from tests.cli.results import Corpus, Kafkafs, Shell, stderr_of


def verbs() -> Iterator[tuple[list[str], click.Command]]:
    context = click.Context(cli)
    for name in VERBS:
        command = cli.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from (([name, sub], found) for sub, found in command.commands.items())
        else:
            yield [name], command


VERBS_AND_COMMANDS = list(verbs())
IDS = [" ".join(words) for words, _ in VERBS_AND_COMMANDS]


def test_version(kafkafs: Kafkafs) -> None:
    result = kafkafs("--version")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"kafkafs {package.__version__}"
    assert dict(line.split(": ", 1) for line in lines[1:]) == {
        "kernels": "compiled" if kernels.COMPILED else "uncompiled",
        "CRC-32C": "hardware" if crc32c.hardware_based else "software",
        "Python": platform.python_version(),
        "extra hdfs": f"hdfs-native {version('hdfs-native')}",
        "extra mount": f"pyfuse3 {version('pyfuse3')}, trio {version('trio')}",
        "extra remote": ", ".join(f"{name} {version(name)}" for name in EXTRAS["remote"]),
        "extra report": f"jinja2 {version('jinja2')}, plotly {version('plotly')}",
        "extra restore": f"confluent_kafka {version('confluent_kafka')}",
        "extra schemas": ", ".join(f"{name} {version(name)}" for name in EXTRAS["schemas"]),
        "extra spark": f"pyspark {version('pyspark')}, py4j {version('py4j')}",
        "extra polars": f"polars {version('polars')}",
        "extra tier": f"pycryptodome {version('pycryptodome')}",
        "extra sql": f"duckdb {version('duckdb')}, prompt_toolkit {version('prompt_toolkit')}",
    }


def test_a_verb_without_its_extra_says_what_to_install(
    kafkafs: Kafkafs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_spec(name: str) -> object:
        return None if name == "pyfuse3" else name

    monkeypatch.setattr("importlib.util.find_spec", find_spec)
    result = kafkafs("mount", tmp_path, tmp_path)
    advice = "pip install 'kafkafs[mount]'"
    assert (result.exit_code, result.stderr) == (
        1,
        f"kafkafs: mount needs pyfuse3, which is not installed: {advice}\n",
    )
    printed = kafkafs("--version").stdout
    assert f"\nextra mount: pyfuse3 not installed ({advice})\n" in printed


@pytest.mark.parametrize("requested", ["", "python"])
def test_uncompiled_kernels_are_reported_once(
    requested: str, environment: Mapping[str, str], corpus: Corpus, tmp_path: Path
) -> None:
    """With one line on stderr, by the Python API or the command line, unless KAFKAFS_KERNELS
    requests them. Here no file name counts as that of an extension module."""
    program = (
        "import importlib.machinery as m, sys; m.EXTENSION_SUFFIXES = []\n"
        "import kafkafs; from kafkafs.cli.main import main\n"
        "kafkafs.open(sys.argv[2])\n"
        "main()"
    )
    words = ["cat", corpus("kafka43-clean"), "orders/0/offset/600", "orders/0/offset/601"]
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        env={**environment, "KAFKAFS_KERNELS": requested},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith('{"order":1780,')
    assert done.stderr.count("are not compiled") == (0 if requested else 1)


def test_help_names_every_verb(kafkafs: Kafkafs) -> None:
    result = kafkafs("--help")
    assert result.exit_code == 0
    for name in VERBS:
        assert f"\n  {name} " in result.output


@pytest.mark.parametrize(("words", "command"), VERBS_AND_COMMANDS, ids=IDS)
def test_help_of_every_verb_teaches(
    kafkafs: Kafkafs, words: list[str], command: click.Command
) -> None:
    assert isinstance(command, Verb)
    result = kafkafs(*words, "--help")
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: kafkafs {' '.join(words)} ")
    shown = result.output.split("\nExamples:\n")[1]
    for line, meaning in command.examples:
        assert f"  {line}\n      {meaning}\n" in shown
    assert max(map(len, result.output.splitlines())) <= 100


@pytest.mark.parametrize(("words", "command"), VERBS_AND_COMMANDS, ids=IDS)
def test_examples_are_right(words: list[str], command: Verb) -> None:
    """Every example that calls its verb has valid arguments and options."""
    for line, _ in command.examples:
        first = shlex.split(re.split(" [|<#] ", line)[0])
        if first[: 1 + len(words)] == ["kafkafs", *words] and "<TAB>" not in line:
            command.make_context(words[-1], first[1 + len(words) :])


def test_without_a_verb_the_help_goes_to_stderr(kafkafs: Kafkafs) -> None:
    result = kafkafs()
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Usage: kafkafs ")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["lss"], "kafkafs: no such verb 'lss'; did you mean ls?"),
        (["retain"], "kafkafs: no such verb 'retain'; did you mean expire? see `kafkafs --help`"),
        (["frob"], "kafkafs: no such verb 'frob'; the verbs are mount, umount, ls, cat, "),
        (["-x"], "kafkafs: no such option '-x'"),
        (["topic", "lst"], "kafkafs topic: no such command 'lst'"),
        (["ls"], "kafkafs ls: missing argument 'LOG_DIRS'; see `kafkafs ls --help`"),
        (["ls", ","], "no directory given; see `kafkafs ls --help`"),
        (["cat", "/"], "kafkafs cat: missing argument 'PATH...'; see `kafkafs cat --help`"),
        (["ls", "--nope", "/"], "kafkafs ls: no such option '--nope'"),
        (["ls", "-c", "retention.ms", "/"], "'retention.ms' is not NAME=VALUE"),
        (["ls", "--isolation", "none", "/"], "'none' is not one of 'read_committed', 'read_unc"),
        (["topic", "list"], "kafkafs topic list: missing argument 'LOG_DIRS'"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(
    kafkafs: Kafkafs, arguments: list[str], line: str
) -> None:
    problem = stderr_of(kafkafs(*arguments), 2)
    assert line in problem
    assert problem.count("\n") == 1


def test_a_wrong_setting_is_wrong_usage(kafkafs: Kafkafs, corpus: Corpus) -> None:
    problem = stderr_of(kafkafs("ls", "-c", "retention.mz=1", corpus("kafka43-clean")), 2)
    assert problem.startswith("kafkafs: retention.mz: no such config; did you mean reten")
    assert "retention.ms" in problem


def test_a_setting_counts(kafkafs: Kafkafs, corpus: Corpus) -> None:
    small = "kafkafs.max.batch.bytes=1000"
    result = kafkafs("cat", "-c", small, corpus("kafka43-clean"), "orders/0/offset/600")
    assert result.exit_code == 1
    assert "(config kafkafs.max.batch.bytes)" in result.stderr


@pytest.mark.parametrize("words", [["ls"], ["stat"], ["topic", "list"], ["cat"], ["explain"]])
def test_what_is_no_log_directory(kafkafs: Kafkafs, tmp_path: Path, words: list[str]) -> None:
    path = ["orders/0/offset/1"] if words[0] in ("cat", "explain") else []
    problem = stderr_of(kafkafs(*words, tmp_path / "nowhere", *path))
    assert problem == f"kafkafs: {tmp_path}/nowhere: no such directory\n"


def test_a_traceback_only_with_debug(kafkafs: Kafkafs, tmp_path: Path) -> None:
    assert "Traceback" not in kafkafs("ls", tmp_path).stderr
    for arguments in (["ls", "--debug", tmp_path], ["--debug", "ls", tmp_path]):
        result = kafkafs(*arguments)
        assert result.exit_code == 1
        assert result.stderr.startswith("Traceback (most recent call last):\n")
        assert "not a Kafka log directory" in result.stderr.splitlines()[-1]


def test_a_fault_of_ours_is_one_line_too(
    kafkafs: Kafkafs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr("kafkafs.cli.support.opening.open_engine", broken)
    result = kafkafs("ls", tmp_path)
    assert result.exit_code == 1
    assert result.stderr == (
        "kafkafs: internal error: ZeroDivisionError: division\\nby zero; "
        "please report it with the output of --debug\n"
    )


def test_an_interrupted_verb_says_nothing(
    kafkafs: Kafkafs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kafkafs.cli.support.opening.open_engine", interrupted)
    result = kafkafs("ls", tmp_path)
    assert (result.exit_code, result.output) == (130, "")


def test_every_error_of_the_engine_has_an_ending() -> None:
    kinds = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.StorageError)
    }
    # A Refused error needs no advice: its message already says what was wrong.
    assert {kind for kind in kinds if not issubclass(kind, errors.Refused)} <= set(failures.ENDINGS)
    assert set(failures.ENDINGS) <= kinds


def test_every_error_of_the_tree_becomes_a_line() -> None:
    given: dict[type[Exception], tuple[object, ...]] = {
        errnos.NoSuchRange: ("what", "why"),
        errnos.PastEnd: ("what", 5, 3),
        errnos.Outgrown: ("what", 5),
    }
    for kind in errnos.ERRNOS:
        if issubclass(kind, errnos.TreeError):
            error = kind(*given.get(kind, ("what",)))
            assert failures.failure(error, "a/x").line().startswith(f"kafkafs: a/x: {error}")
            assert kind in given or str(error).startswith("what")


def test_an_error_of_the_disk_names_the_file() -> None:
    denied = failures.failure(PermissionError(errno.EACCES, "Permission denied", "/data/a.log"))
    assert denied.line().startswith("kafkafs: /data/a.log: Permission denied; run as a user who")
    broken = failures.failure(OSError(errno.EIO, "a reason", b"/data/a.log"), "orders/0/values")
    assert broken.line() == "kafkafs: orders/0/values: /data/a.log: a reason"
    forbidden = failures.failure(PermissionError(errno.EACCES, "Permission denied", "s3://b/a.log"))
    assert forbidden.line().startswith("kafkafs: s3://b/a.log: Permission denied; give credentials")


def test_a_hostile_name_cannot_write_to_the_terminal() -> None:
    reported = failures.failure(errors.LogDirError("/data\n\x1b[31m", "no such directory"))
    assert reported.line() == "kafkafs: /data\\n\\x1b[31m: no such directory"


def imported_by(environment: Mapping[str, str], *arguments: object) -> set[str]:
    script = (
        "import sys\n"
        "from kafkafs.cli.main import cli\n"
        "try:\n    cli(sys.argv[1:])\n"
        "finally:\n    print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=dict(environment),
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.split())


def test_verbs_import_only_what_they_need(environment: Mapping[str, str], corpus: Corpus) -> None:
    """Importing any of these modules takes longer than all other work of such a verb."""
    for line in ("--version", "--help", "completion bash"):
        heavy = {"numpy", "pyarrow", "trio", "pyfuse3"}
        assert not heavy & imported_by(environment, *line.split())
    directory = corpus("kafka43-clean")
    for words in (
        ["ls", directory],
        ["cat", directory, "orders/0/offset/600", "orders/0/values"],
        ["stat", directory, "orders/0/offset/600"],
        ["explain", directory, "orders/0/offset/600"],
        ["topic", "list", directory],
    ):
        heavy = {"pyarrow", "trio", "pyfuse3", "pyspark", "importlib.metadata", "hashlib"}
        # What writes, compacts or previews is a third of the engine.
        heavy |= {"kafkafs.mount.writes.changes", "kafkafs.storage.cleaner.preview.preview"}
        heavy |= {"kafkafs.storage.tier.opening", "kafkafs.storage.redpanda.opening"}
        heavy |= {"kafkafs.storage.format.messages.remote_log_metadata"}
        assert not heavy & imported_by(environment, *words)
    query = "SELECT count(value) FROM orders"
    decoding = {"kafkafs.storage.schemas.typed.decoder", "kafkafs.storage.schemas.catalog"}
    assert not decoding & imported_by(environment, "sql", directory, query)


def test_python_dash_m(shell: Shell) -> None:
    done = shell(f"{sys.executable} -m kafkafs --version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"kafkafs {package.__version__}\nkernels: ")


def test_a_reader_who_has_enough_ends_a_verb_quietly(shell: Shell, corpus: Corpus) -> None:
    directory = corpus("kafka43-clean")
    done = shell(
        f"kafkafs cat {directory} orders/{{0,1,2}}/records.jsonl | head -1 | wc -l;"
        " echo ${PIPESTATUS[0]}"
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["1", "141"]  # 128 + SIGPIPE


@pytest.mark.parametrize("words", ["ls {}", "cat {} orders/0/values", "topic list {}"])
def test_a_full_disk_is_told(shell: Shell, corpus: Corpus, words: str) -> None:
    done = shell(f"kafkafs {words.format(corpus('kafka43-clean'))} > /dev/full")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "kafkafs: stdout: No space left on device\n"


@pytest.mark.parametrize("words", ["ls {}", "cat {} orders/0/values", "sql {} 'SELECT 1'"])
def test_a_closed_stdout_is_told(shell: Shell, corpus: Corpus, words: str) -> None:
    done = shell(f"kafkafs {words.format(corpus('kafka43-clean'))} >&-")
    assert done.returncode == 1
    assert done.stderr == "kafkafs: stdout is closed; there is nowhere to write to\n"


def test_mount_fuse_is_told_from_a_person() -> None:
    assert called_by_mount_fuse(["/data", "/mnt", "-o", "ro"])
    assert not called_by_mount_fuse(["mount", "/data", "/mnt"])
    assert not called_by_mount_fuse([])


def test_the_help_tells_verbs_that_write_from_those_that_change_nothing(kafkafs: Kafkafs) -> None:
    text = kafkafs("--help").stdout
    titles = "Verbs that change no log", "Verbs that write", "Other verbs"
    sections = re.split("|".join(f"{title}:" for title in titles), text)[1:]
    reading, writing, other = (set(re.findall(r"^  (\w+)  ", each, re.M)) for each in sections)
    assert writing == WRITING
    assert other == OTHER
    assert reading == VERBS.keys() - WRITING - OTHER
    for verb in VERBS.keys() - WRITING:
        source = (Path(verb_modules.__path__[0]) / f"{VERBS[verb]}.py").read_text("utf-8")
        assert not re.search(r"LogManager|open_writable|mounted_engine|\bwriting\(", source)
        assert not any(request.writes for request in requests_in(source)), verb


def requests_in(source: str) -> Iterator[Request]:
    """The requests that a verb makes, with any arguments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and "storage.operations" in (node.module or ""):
            module = import_module(node.module or "")
            for kind in (getattr(module, alias.name) for alias in node.names):
                if isinstance(kind, type) and hasattr(kind, "writes"):
                    needed = [each for each in fields(kind) if each.default is MISSING]
                    yield kind(*[each.name for each in needed if each.default_factory is MISSING])
