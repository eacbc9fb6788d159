"""Shares work in Python among forked processes, where forking is safe."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

# More processes gain little: the caller unpickles all their results.
_MOST_PROCESSES: Final = 8


def share(work: Callable[[Sequence[T]], list[R]], items: Sequence[T], least: int) -> list[R]:
    """Returns `work(items)`, computed in parallel from parts of at least `least` items if there are
    several processors and this process may fork.

    `work` has no side effects, and maps items to results in order. A part whose process fails is
    computed by this one, so that its error is raised here.
    """
    count = min(len(items) // least, _processors()) or 1
    edges = [len(items) * part // count for part in range(count + 1)]
    first, *others = [items[low:high] for low, high in pairwise(edges)]
    with _computing(work, others) as pipes:
        results = work(first)
        for pipe, part in zip(pipes, others, strict=True):
            try:
                results += pickle.loads(pipe.recv_bytes())
            except EOFError:
                results += work(part)
    return results


def _processors() -> int:
    """Returns how many processes may share the work: 1 unless forking is safe, so where no other
    thread of Python holds a lock that a child needs. (NumPy's and Arrow's own threads are prepared
    for forks; the libraries of macOS are not.)"""
    if not sys.platform.startswith("linux") or threading.active_count() > 1:
        return 1
    return min(len(os.sched_getaffinity(0)), _MOST_PROCESSES)


@contextmanager
def _computing(
    work: Callable[[Sequence[T]], list[R]], parts: Sequence[Sequence[T]]
) -> Iterator[list[Connection]]:
    """Runs a process for each part; yields the pipes with their pickled results."""
    fork = multiprocessing.get_context("fork")
    processes, pipes = [], []
    try:
        for part in parts:
            ours, theirs = fork.Pipe(duplex=False)
            pipes.append(ours)
            with theirs:
                process = fork.Process(target=_compute, args=(work, part, theirs), daemon=True)
                process.start()
                processes.append(process)
        yield pipes
    finally:
        for process in processes:
            process.kill()
            process.join()
        for pipe in pipes:
            pipe.close()


def _compute(work: Callable[[Sequence[T]], list[R]], part: Sequence[T], into: Connection) -> None:
    with suppress(Exception):  # the parent computes the part again, and raises the error
        into.send_bytes(pickle.dumps(work(part), pickle.HIGHEST_PROTOCOL))
