"""What the README says, as far as a program can tell."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

import kafkafs
from kafkafs.cli.main import VERBS, cli
from kafkafs.mount.options import parse_options
from kafkafs.storage.config.kafka import reader_config, run_settings, texts
from tests.readme import ROOT, blocks, section

README = (ROOT / "README.md").read_text()


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert links
    for link in links:
        if link.startswith("#"):
            titles = re.findall(r"^#+ (.+)$", README, re.MULTILINE)
            assert link[1:] in [
                re.sub(r"[^a-z -]", "", t.lower()).replace(" ", "-") for t in titles
            ]
        else:
            assert (ROOT / link).exists(), link


def test_files_of_the_reading_order_exist() -> None:
    text = section(README, "Reading the source")
    named = re.findall(r"`((?:storage|mount|kafkafs)/[\w/.]+\.py)`", text)
    assert len(named) > 10
    for name in named:
        assert (ROOT / name).is_file(), name


def test_every_verb_is_told() -> None:
    told = set(re.findall(r"`kafkafs (\w+)|`(ls|cat|stat) ?", section(README, "Verbs")))
    assert {name for pair in told for name in pair if name} - {"VERB"} == set(VERBS)


def test_options_exist() -> None:
    text = section(README, "Options") + section(README, "fstab, systemd, other users")
    given = re.findall(r"`mount -o ([\w=,]+)`|fuse\.kafkafs  (\S+)", text)
    assert len(given) > 3
    for option in (one or other for one, other in given):
        parse_options(option.replace("LEVEL", "read_committed").replace("FILE", "/tmp/log"))


def test_the_readers_settings_have_these_defaults() -> None:
    told = re.findall(r"`(kafkafs\.[\w.]+)` \((\d+)\)", section(README, "Options"))
    assert dict(told) == texts(reader_config(run_settings(())))


def test_the_python_example_runs(
    corpus: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    [example] = blocks(section(README, "Your own data"), "python")
    log_dir = str(corpus("kafka43-clean"))
    scope: dict[str, Any] = {}
    exec(example.replace("/var/lib/kafka/data", log_dir), scope)
    printed = capsys.readouterr().out.splitlines()
    assert "'orders': [0, 1, 2]" in printed[0]
    assert printed[1] == "0 6674 6674"
    assert printed[2].startswith('b\'{"order":1780,')
    table = scope["table"]
    assert table.column_names == ["offset", "key"]
    assert table.num_rows == 6674 - 600


def test_the_examples_of_writing_run(tmp_path: Path) -> None:
    text = section(README, "Writing")
    [script], [example] = blocks(text, "sh"), blocks(text, "python")
    data = str(tmp_path / "data")
    program = f"{sys.executable} -m kafkafs"
    lines = script.replace("/data", data).replace("kafkafs ", f"{program} ")
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", lines],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "orders/1: 3 records, offsets 0 to 2\n" in done.stdout
    assert done.stdout.endswith("2 partitions: nothing is wrong\n")
    scope: dict[str, Any] = {}
    exec(example.replace("/data", data), scope)
    assert scope["offsets"] == range(1)
    with kafkafs.open(data) as d:
        assert d["orders", 0].scan(columns=["value"]).read_all().num_rows == 6
        assert d["payments", 1].record(0).value == b"12.50"


def test_the_verbs_that_the_help_lists_are_these() -> None:
    assert cli.list_commands(click.Context(cli)) == list(VERBS)
