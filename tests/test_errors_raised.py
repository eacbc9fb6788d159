"""Checks the source for two rules that keep errors and finalisers from holding threads.

- An error that is stored somewhere is not raised itself: `fresh` makes a copy. Otherwise the error
  keeps the frames that it passes, one of them keeps the error, and everything that these frames
  read with stays open until the garbage collector runs, at any time.
- A generator does not wait for a thread when it is closed, because the garbage collector may close
  it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ("storage", "mount", "kafkafs")
#: Calls that wait for threads, or whose results do in `close` or at the end of a `with`.
WAITING = {"ThreadPoolExecutor", "one_ahead", "side_by_side", "AppendsInFlight", "shutdown", "land"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def kept_errors(tree: ast.AST) -> Iterator[ast.Raise]:
    """Yields each `raise` of an attribute, an element or a variable, unless an `except` binds the
    variable or it is deleted when the frame is left."""
    for function in ast.walk(tree):
        if isinstance(function, Function):
            caught = {
                each.name for each in ast.walk(function) if isinstance(each, ast.ExceptHandler)
            }
            deleted = set(_deleted(function))
            for each in ast.walk(function):
                if isinstance(each, ast.Raise) and isinstance(
                    each.exc, ast.Attribute | ast.Subscript | ast.Name
                ):
                    name = ast.unparse(each.exc)
                    is_class = name.rpartition(".")[2][0].isupper()
                    if (
                        not is_class
                        and name not in caught
                        and name.partition("[")[0] not in deleted
                    ):
                        yield each


def _deleted(function: Function) -> Iterator[str]:
    for each in ast.walk(function):
        if isinstance(each, ast.Try):
            for last in each.finalbody:
                if isinstance(last, ast.Delete):
                    yield from map(ast.unparse, last.targets)


def waiting_generators(tree: ast.AST) -> Iterator[tuple[Function, str]]:
    """Yields generators that wait for threads when they are closed: in a `finally` or a `with`."""
    for function in ast.walk(tree):
        if isinstance(function, Function) and _is_generator(function):
            for each in ast.walk(function):
                if isinstance(each, ast.With):
                    ends: list[ast.AST] = [item.context_expr for item in each.items]
                elif isinstance(each, ast.Try):
                    ends = list(each.finalbody)
                else:
                    continue
                names = {
                    ast.unparse(call.func).rpartition(".")[2]
                    for end in ends
                    for call in ast.walk(end)
                    if isinstance(call, ast.Call)
                }
                for name in names & WAITING:
                    yield function, name


def _is_generator(function: Function) -> bool:
    inner = {
        part
        for each in ast.walk(function)
        if isinstance(each, Function | ast.Lambda) and each is not function
        for part in ast.walk(each)
    }
    yields = (ast.Yield, ast.YieldFrom)
    return any(isinstance(each, yields) for each in set(ast.walk(function)) - inner)


def sources() -> list[Path]:
    return [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


def test_no_error_that_is_kept_is_raised() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{each.lineno}: {ast.unparse(each)}"
        for path in sources()
        for each in kept_errors(ast.parse(path.read_text()))
    ]
    assert not found


def test_no_generator_waits_for_a_thread_when_it_is_closed() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{function.lineno}: {function.name}: {name}"
        for path in sources()
        for function, name in waiting_generators(ast.parse(path.read_text()))
    ]
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "def f(part):\n raise part.error",
        "def f(errors):\n raise errors[0]",
        "def f(job):\n failure = job()\n if failure:\n  raise failure",
    ],
)
def test_the_rule_of_errors_sees(source: str) -> None:
    assert list(kept_errors(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "def f(part):\n raise fresh(part.error)",
        "def f():\n try:\n  g()\n except OSError as error:\n  raise error",
        "def f(errors):\n try:\n  raise errors[0]\n finally:\n  del errors",
        "def f():\n raise errnos.Idle",
    ],
)
def test_the_rule_of_errors_allows(source: str) -> None:
    assert not list(kept_errors(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n with ThreadPoolExecutor(2) as helpers:\n  yield 1",
        "def f():\n with closing(one_ahead(items)) as ahead:\n  yield from ahead",
        "def f():\n try:\n  yield 1\n finally:\n  flight.land()",
    ],
)
def test_the_rule_of_generators_sees(source: str) -> None:
    assert list(waiting_generators(ast.parse(source)))
    assert not list(
        waiting_generators(ast.parse(source.replace("yield from", "").replace("yield", "")))
    )
