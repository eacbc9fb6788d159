"""A trial only shows that the rows work. Its figures mean nothing, so it saves what makes figures
comparable: warm-ups, JVMs with all compilers, and processes that no other row has used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

_T = TypeVar("_T")
#: What all rows of a trial share, by name.
_shared: dict[str, Any] = {}
_until_end = ExitStack()
_is_trial = False


@contextmanager
def running() -> Iterator[None]:
    """Makes the block a trial; what its rows shared is closed at its end."""
    global _is_trial
    _is_trial = True
    try:
        yield
    finally:
        _is_trial = False
        _shared.clear()
        _until_end.close()


def is_trial() -> bool:
    """Returns whether this is a trial."""
    return _is_trial


def all_compilers() -> tuple[str, ...]:
    """Returns the options of a JVM for peak performance; in a trial there are none, and it keeps
    those for a fast start."""
    return () if _is_trial else ("-XX:TieredStopAtLevel=4",)


@contextmanager
def shared(name: str, make: Callable[[], AbstractContextManager[_T]]) -> Iterator[_T]:
    """Yields what `make` returns, entered for this block; in a trial entered once, for all blocks
    with this name."""
    if not _is_trial:
        with make() as made:
            yield made
        return
    if name not in _shared:
        _shared[name] = _until_end.enter_context(make())
    yield _shared[name]
