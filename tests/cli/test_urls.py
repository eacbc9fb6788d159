"""Tests that every path parameter rejects URLs that kafkafs cannot open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import kafkafs as api
from examples.textbook import write_textbook
from kafkafs.cli.main import cli
from kafkafs.cli.params.paths import LocalFile, LocalPath, ReadablePath
from kafkafs.storage.errors import LogDirError
from kafkafs.storage.io.local_path import local_path
from tests.cli.results import Kafkafs

URL = "s3a://bucket/x"
#: Metavars of local paths. PATH is a path inside the tree, URL that of a Spark master.
_PATH = re.compile(r"FILE|DIR|MOUNTPOINT")
#: Path parameters that must be found; otherwise the search for them is broken.
_SOME = {
    *(("mount", "mountpoint"), ("umount", "mountpoints"), ("ls", "log_dirs")),
    *(("append", "file"), ("dump", "files"), ("dump", "more"), ("topic create", "log_dirs")),
    *(("spark stats", "output"), ("spark verify", "state"), ("spark compact", "staging")),
    *(("spark merge", "other"), ("spark import", "source"), ("spark export", "output")),
}


def commands(group: click.Group, above: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, f"{above}{name} ")
        yield above + name, found


def takes_path(parameter: click.Parameter) -> bool:
    is_path = isinstance(parameter.type, click.Path | click.File)
    return is_path or bool(_PATH.search(parameter.metavar or ""))


FOUND = [
    (name, command, parameter)
    for name, command in commands(cli)
    for parameter in command.params
    if takes_path(parameter)
]


def words(parameter: click.Parameter, value: str) -> list[str]:
    if isinstance(parameter, click.Option):
        return [max(parameter.opts, key=len), value]
    return [value]


def filler(parameter: click.Parameter, here: Path) -> str:
    """Returns a valid value for a required parameter."""
    if takes_path(parameter):
        is_file = isinstance(parameter.type, LocalPath) and not parameter.type.dir_okay
        return str(here / "new" if is_file else here)
    return "t/0"


def command_line(
    name: str, command: click.Command, tested: click.Parameter, value: str, here: Path
) -> list[str]:
    """Returns all required arguments of the command, with `value` for `tested`."""
    line = name.split()
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    behind = arguments.index(tested) if isinstance(tested, click.Argument) else -1
    for parameter in command.params:
        if parameter is tested:
            line += words(parameter, value)
        elif parameter.required or (parameter in arguments[: max(behind, 0)]):
            line += words(parameter, filler(parameter, here))
    return line


def test_all_parameters_with_paths_are_found() -> None:
    assert {(name, parameter.name) for name, _, parameter in FOUND} >= _SOME


def test_click_opens_no_path_by_itself() -> None:
    for name, _, parameter in FOUND:
        if isinstance(parameter.type, click.Path | click.File):
            assert isinstance(parameter.type, LocalPath | LocalFile | ReadablePath), (
                name,
                parameter.name,
            )


@pytest.mark.parametrize(
    ("name", "command", "parameter"), FOUND, ids=[f"{name} {each.name}" for name, _, each in FOUND]
)
def test_no_parameter_takes_a_url(
    name: str,
    command: click.Command,
    parameter: click.Parameter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_textbook(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for value in (URL, f"data,{URL}") if parameter.name == "log_dirs" else (URL,):
        line = command_line(name, command, parameter, value, tmp_path / "data")
        result = CliRunner().invoke(cli, line)
        assert (result.exit_code, result.stdout) == (2, ""), (line, result.output)
        assert f"{URL}: a URL of the scheme s3a" in result.stderr, (line, result.output)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_mount_writes_no_log_to_a_url(tmp_path: Path, kafkafs: Kafkafs) -> None:
    write_textbook(tmp_path / "data")
    result = kafkafs("mount", "--check", "-o", f"log={URL}", tmp_path / "data", tmp_path)
    assert result.exit_code == 2
    assert f"{URL}: a URL of the scheme s3a" in result.stderr


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("file:///data/a b", "/data/a b"),
        ("file:/data", "/data"),
        ("FILE:///data", "/data"),
        ("file://localhost/data", "/data"),
        ("file:////data", "/data"),
        ("/data", "/data"),
        ("./s3a:", "./s3a:"),
        ("./s3a://bucket/x", "./s3a://bucket/x"),
        ("/data/s3a://x", "/data/s3a://x"),
        ("10:30", "10:30"),
        ("a\nb:/c", "a\nb:/c"),
        ("", ""),
    ],
)
def test_local_paths(text: str, path: str) -> None:
    assert local_path(text) == path


@pytest.mark.parametrize(
    "text",
    ["s3a://bucket/x", "s3a:/bucket", "hdfs://nn:8020/x\ny", "HTTPS://host/", "file://host/data"],
)
def test_urls(text: str) -> None:
    with pytest.raises(
        LogDirError, match=r"a URL of the scheme|a URL, which can only|a file on the host 'host'"
    ):
        local_path(text)


def test_file_urls_work_in_verbs(
    tmp_path: Path, kafkafs: Kafkafs, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_textbook(tmp_path / "data")
    topics = kafkafs("ls", tmp_path / "data").stdout
    assert topics
    assert kafkafs("ls", f"file://{tmp_path}/data").stdout == topics
    log = next((tmp_path / "data").glob("*/*.log"))
    dumped = kafkafs("dump", log).stdout
    assert kafkafs("dump", f"file://{log}").stdout == dumped
    assert kafkafs("dump", "--files", f"file:{log}").stdout == dumped
    lines = tmp_path / "lines"
    lines.write_text("hello\n")
    kafkafs("topic", "create", f"file://{tmp_path}/new", "t")
    assert kafkafs("append", f"file://{tmp_path}/new", "t/0", f"file://{lines}").exit_code == 0
    assert kafkafs("cat", tmp_path / "new", "t/0/values").stdout == "hello\n"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").rename("s3a:")
    assert kafkafs("ls", "./s3a:").stdout == topics


def test_python_opens_file_urls_and_no_others(tmp_path: Path) -> None:
    write_textbook(tmp_path / "data")
    with api.open(f"file://{tmp_path}/data") as opened:
        assert opened.topics
    with api.open([f"file://{tmp_path}/data"]) as opened:
        assert opened.topics
    for given in (URL, [URL], Path(URL), f"{tmp_path}/data,{URL}"):
        with pytest.raises(LogDirError, match="a URL of the scheme s3a"):
            api.open(given, writable=True)
