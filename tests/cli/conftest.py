"""Fixtures that run kafkafs in the test process or as a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from examples.textbook import write_textbook
from kafkafs.cli.main import cli
from tests import warm_python
from tests.cli.results import Corpus, Kafkafs, Shell

ROOT = Path(__file__).parents[2]


@pytest.fixture
def kafkafs() -> Kafkafs:
    """`kafkafs("ls", path, …)` runs in this process and returns click's result."""

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(cli, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def clean(corpus: Corpus) -> Path:
    """The log directory of a broker that was stopped in good order."""
    return corpus("kafka43-clean")


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """The environment in which a process finds this kafkafs, whether or not it is installed."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("_")}
    return {**inherited, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "TZ": "UTC"}


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory, environment: Mapping[str, str]) -> Path:
    """A directory for the PATH with the programs `kafkafs` and `mount.kafkafs`."""
    directory = tmp_path_factory.mktemp("bin")
    for name, module in (("kafkafs", "kafkafs"), ("mount.kafkafs", "kafkafs.cli.mount_helper")):
        program = directory / name
        # mount(8) clears most of the environment, so the script sets PYTHONPATH itself.
        program.write_text(
            f"#!/bin/sh\nPYTHONPATH='{ROOT}' exec '{sys.executable}' -m {module} \"$@\"\n"
        )
        program.chmod(0o755)
    return directory


@pytest.fixture(scope="session")
def shell(programs: Path, environment: Mapping[str, str]) -> Shell:
    """`shell("kafkafs ls … | head -1")` runs a bash script with kafkafs on its PATH."""

    def run(script: str) -> subprocess.CompletedProcess[str]:
        path = f"{programs}:{environment['PATH']}"
        return subprocess.run(
            ["bash", "-c", script],
            env={**environment, "PATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def textbook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of examples/textbook.py."""
    directory = tmp_path_factory.mktemp("textbook")
    write_textbook(directory)
    return directory


@pytest.fixture(scope="session")
def warm_shell(environment: Mapping[str, str]) -> Shell:
    """The same, but kafkafs starts at once, as a fork of a process that has imported it."""
    return lambda script: warm_python.run_script(["-c", script], environment)
