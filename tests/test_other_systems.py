"""Reading without a mount works on macOS and Windows; what only Linux can do is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import unchanged
from tests.other_systems import names_of


def run(system: str, log_dir: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "tests.other_systems", system, log_dir],
        cwd=unchanged.ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_stubs_say_what_a_system_lacks() -> None:
    assert {"O_NOATIME", "sched_getaffinity", "preadv"} <= names_of("os", "linux")
    assert not {"O_NOATIME", "sched_getaffinity"} & names_of("os", "darwin")
    assert not {"pread", "geteuid", "O_CLOEXEC", "SEEK_DATA"} & names_of("os", "win32")
    assert not names_of("fcntl", "win32")
    assert "SIGPIPE" not in names_of("signal", "win32")


@pytest.mark.slow
def test_reading_gives_the_same_on_every_system(
    writable_corpus: Callable[[str], Path],
) -> None:
    log_dir = writable_corpus("kafka43-clean")
    (log_dir / "idem-0" / f"{9:020}.log").symlink_to(log_dir / "orders-0" / f"{0:020}.log")
    (log_dir / "linked-0").symlink_to(log_dir / "orders-0")
    expected, _ = run("linux", log_dir)
    for system in ("darwin", "win32"):
        found, refused = run(system, log_dir)
        assert found == expected
        for line, (code, out, error) in refused.items():
            assert (code, out) == (1, ""), line
            is_mount = line.startswith("mount")
            assert ("mounting needs Linux" if is_mount else "can be changed only on Linux") in error
            assert error.count("\n") == 1
    assert not Path(f"{log_dir}-new").exists()
