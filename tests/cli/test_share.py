"""The man pages and completion scripts that an installation puts below `share/`."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import click
import pytest

from kafkafs.cli import main, share


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `share` directory."""
    root = tmp_path_factory.mktemp("share")
    for name, text in share.files().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def run(*command: object, environment: Mapping[str, str] | None = None) -> str:
    """Returns what the command prints on stdout and stderr."""
    done = subprocess.run(
        [str(word) for word in command],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    return done.stdout


def test_every_verb_has_a_page() -> None:
    pages = {name for name, _ in share.man_pages()}
    assert {"kafkafs", "kafkafs-topic-create", "kafkafs-spark-verify"} <= pages
    assert {f"kafkafs-{verb}" for verb in main.VERBS} <= pages


def test_no_page_has_a_fault(directory: Path) -> None:
    pages = sorted((directory / "man" / "man1").iterdir())
    assert run("groff", "-man", "-ww", "-b", "-z", *pages) == ""
    assert run("mandoc", "-T", "lint", "-W", "warning", *pages) == ""


def test_man_shows_a_page(directory: Path) -> None:
    """Also the first line of NAME, which `apropos` needs; and text that roff must not change."""
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "120"}
    pages = directory / "man" / "man1"
    text = run("man", "--warnings=all", "-l", pages / "kafkafs-mount.1", environment=environment)
    assert "kafkafs-mount - mount log directories read-only or, with --rw, writable\n" in text
    assert "kafkafs mount [OPTIONS] LOG_DIRS MOUNTPOINT\n" in text
    for section in ("DESCRIPTION", "OPTIONS", "EXIT STATUS", "FILES", "EXAMPLES", "SEE ALSO"):
        assert f"\n{section}\n" in text
    assert "kafkafs mount --rw /data /mnt/kafka\n" in text
    program = run("man", "--warnings=all", "-l", pages / "kafkafs.1", environment=environment)
    assert "  kafkafs cat /data orders/0/offset/600     print the value of one record\n" in program


def test_text_is_shown_as_it_stands(tmp_path: Path) -> None:
    """Text that begins like a command of roff, or contains its escapes."""
    text = r".so it's \n, ^~ `-x` and 'quoted' … a-b"

    @click.command(help=text, short_help=text)
    @click.option("--text", help=text)
    def command(text: str) -> None: ...

    context = click.Context(command, info_name="kafkafs-odd")
    page = tmp_path / "odd.1"
    page.write_text("\n".join((*share._page("kafkafs-odd", context), "")), encoding="utf-8")
    shown = run("groff", "-man", "-Tutf8", "-P-cbou", page, environment={"PATH": "/usr/bin:/bin"})
    assert shown.replace("’", "'").count(text.replace("`", "")) == 3


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_installed_scripts_are_what_the_verb_prints(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main.cli(["completion", shell])
    assert share.files()[share.COMPLETIONS[shell]] == capsys.readouterr().out
