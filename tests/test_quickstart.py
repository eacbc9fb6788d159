"""`examples/quickstart.sh`, run as a user would, and the tours of the pages."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.readme import README, ROOT, TOUR, blocks

VENV_PROGRAMS = ROOT / ".venv" / "bin"

pytestmark = [pytest.mark.slow, pytest.mark.mounted, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What two runs print, the same each time; they leave neither a file nor a mount behind."""
    temporary = tmp_path_factory.mktemp("quickstart")
    first, second = run(temporary), run(temporary)
    assert first == second
    assert list(temporary.iterdir()) == []
    assert str(temporary) not in Path("/proc/self/mountinfo").read_text()
    return first


def run(temporary: Path) -> str:
    # The script finds its own environment; one that is active would be another Python to it.
    path = [part for part in os.environ["PATH"].split(os.pathsep) if part != str(VENV_PROGRAMS)]
    done = subprocess.run(
        [ROOT / "examples" / "quickstart.sh"],
        env=os.environ | {"PATH": os.pathsep.join(path), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=250,
    )
    return done.stdout


@pytest.mark.parametrize("page", [README, TOUR], ids=["README", "tour"])
def test_a_page_shows_what_the_quickstart_prints(printed: str, page: Path) -> None:
    for command in shown(page):
        assert f"\n$ {command}\n" in printed


def test_the_tour_shows_every_command(printed: str) -> None:
    commands = re.findall(r"^\$ (.+)$", printed, re.MULTILINE)
    assert [command.partition("\n")[0] for command in shown(TOUR)] == commands


def shown(page: Path) -> list[str]:
    """The commands of the page's tour, each with its output."""
    tour = blocks(page.read_text(), "console")
    return [command.removeprefix("$ ").strip() for block in tour for command in block.split("\n$ ")]


def test_the_quickstart_uses_these_tools(printed: str) -> None:
    commands = [line[2:] for line in printed.splitlines() if line.startswith("$ ")]
    first_words = {command.split()[0] for command in commands}
    assert first_words >= {
        "ls",
        "cat",
        "jq",
        "grep",
        "find",
        "getfattr",
        "tail",
        "kafkafs",
        "python",
    }
    assert "\nunchanged\n" in printed
    assert printed.endswith("nothing is wrong\n")
