"""What the fixtures of these tests return, and what a command that succeeded has printed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result

Kafkafs = Callable[..., Result]
Corpus = Callable[[str], Path]
Shell = Callable[[str], subprocess.CompletedProcess[str]]


def stdout_of(result: Result) -> str:
    """Returns the output of a command that succeeded without a word on stderr."""
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def lines_of(result: Result) -> list[str]:
    """Returns the lines that a command printed, which must have succeeded."""
    return stdout_of(result).splitlines()


def rows_of(result: Result) -> list[dict[str, Any]]:
    """Returns the JSON lines that a command printed, which must have succeeded."""
    return [json.loads(line) for line in lines_of(result)]


def stderr_of(result: Result, code: int = 1) -> str:
    """Returns the stderr of a command that printed nothing else and exited with `code`."""
    assert (result.exit_code, result.stdout) == (code, "")
    return result.stderr
