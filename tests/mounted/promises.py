"""The promises of `mount/SEMANTICS.md`, and the tests that quote them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[..., None])

_HERE = Path(__file__).parent
DOCUMENT = _HERE.parent.parent / "mount" / "SEMANTICS.md"
_SENTENCE = re.compile(r"^- (\d+\.\d+) (.*(?:\n  .*)*)$", re.MULTILINE)


def promise(*sentences: str) -> Callable[[Test], Test]:
    """Quotes, above a test, the promises that it proves."""

    def mark(test: Test) -> Test:
        return test

    assert sentences
    return mark


def promised() -> dict[str, str]:
    """Returns the promises of the document, by number."""
    matches = _SENTENCE.finditer(DOCUMENT.read_text(encoding="utf-8"))
    return {match[1]: match[2].replace("\n  ", " ") for match in matches}


def quoted() -> list[str]:
    """Returns every promise quoted above a test here."""
    found: list[str] = []
    for path in sorted(_HERE.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                found += _quoted_over(node)
    return found


def _quoted_over(function: ast.FunctionDef) -> list[str]:
    calls = [each for each in function.decorator_list if isinstance(each, ast.Call)]
    quotes = [
        each for each in calls if isinstance(each.func, ast.Name) and each.func.id == "promise"
    ]
    return [ast.literal_eval(argument) for call in quotes for argument in call.args]
