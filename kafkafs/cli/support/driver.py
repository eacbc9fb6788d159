"""Carries out requests of the command line, wherever the engine of the directories is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

from kafkafs.storage import Engine, LogDirLocked, PartitionFailed, ProgressListener, Request

from . import failures
from .opening import Opening, open_engine, writing
from .progress import Report, bar
from .words import Config

if TYPE_CHECKING:
    from .mounted_engine import MountedEngine

Q = TypeVar("Q", bound=Request, contravariant=True)
R = TypeVar("R", covariant=True)
# Carries out a request through a mount, as `MountedEngine.ask` does.
Through = Callable[["MountedEngine", Any, ProgressListener], Iterable[Any]]


class Operation(Protocol[Q, R]):
    """A function of an engine and a request that yields rows."""

    def __call__(
        self, engine: Any, request: Q, progress: ProgressListener = ..., /
    ) -> Iterator[R | PartitionFailed]: ...


def perform(
    log_dirs: tuple[str, ...],
    configs: Sequence[Config],
    request: Q,
    operation: Operation[Q, R],
    put: Callable[[R], object],
    *,
    at: int | None = None,
    through: Through | None = None,
    asks_mount: bool = False,
    creates: bool = False,
    **opening: Unpack[Opening],
) -> int:
    """Carries out a request, calls `put` with every row, reports what failed on stderr, also files
    of topic configs that could not be read, and returns the exit code.

    A request that only reads takes no lock. One that writes opens the directories for writing, or
    is forwarded to the user's own mount if that holds them, by `through` if forwarding takes more
    than asking. With `asks_mount`, so is one that only reads, because the mount knows more. With
    `creates`, missing directories are created. Raises LogDirLocked if another process holds the
    directories. `at`: a request that only reads sees the directories as of this time (ms since
    1970). `opening` as for `open_writable`.
    """

    def take(rows: Iterable[R | PartitionFailed]) -> int:
        code = 0
        for row in rows:
            if isinstance(row, PartitionFailed):
                code = failures.report_row(row)
            else:
                put(row)
        return code

    def here(engine: Engine) -> int:
        with progress_bars() as progress:
            code = take(operation(engine, request, progress))
        failures.warn_of_unserved(engine)
        return failures.report_configs(engine) or code

    def there(mounted: MountedEngine) -> int:
        if through is None:
            return take(mounted.ask(request))
        with progress_bars() as progress:
            return take(through(mounted, request, progress))

    asks_mount |= request.writes and opening.get("owner") is None
    mounted = _mount_for(request, log_dirs, configs) if asks_mount else None
    if mounted is not None:
        return there(mounted)
    used = tuple(filter(_is_used, log_dirs)) if creates else log_dirs
    if used:
        with closing(open_engine(used, configs, at)) as engine:
            refused = request.check(engine)
            if refused:
                return take(refused)
            if not request.writes:
                return here(engine)
    try:
        with writing(log_dirs, configs, **opening) as manager:
            return here(manager)
    except LogDirLocked:
        mounted = _mount_for(request, log_dirs, configs) if asks_mount else None
        if mounted is None:
            raise
    return there(mounted)


def _mount_for(
    request: Request, log_dirs: tuple[str, ...], configs: Sequence[Config]
) -> MountedEngine | None:
    """Returns the user's own mount that holds the directories and can carry out the request."""
    from kafkafs.mount.control.lines import is_forwardable

    from .mounted_engine import holding

    return holding(log_dirs, configs) if is_forwardable(request) else None


def _is_used(path: str) -> bool:
    """Whether a directory exists and is not empty."""
    return os.path.isdir(path) and bool(os.listdir(path))


class _Bars(ProgressListener):
    """Shows progress as a bar for each thing that is being done."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._what = ""
        self._report: Report | None = None

    def report(self, what: str, done: int, total: int) -> None:
        if self._report is None or what != self._what:
            self._stack.close()
            self._what, self._report = what, self._stack.enter_context(bar(what))
        self._report(done, total)


@contextmanager
def progress_bars() -> Iterator[ProgressListener]:
    """Yields a listener that shows progress on stderr, if that is a terminal."""
    with ExitStack() as stack:
        yield _Bars(stack)
