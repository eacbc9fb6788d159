"""Writes outcomes as text, each as soon as it is measured: what follows may fail or be killed."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from tests.bench.race import Failed, Outcome

Row = Outcome | Failed

_TITLES = ("row", "work", "ours", "peer", "theirs", "ratio", "target", "")
# The least widths of a plain table's columns: those of the usual cells.
_WIDTHS = (3, 52, 16, 36, 16, 6, 14, 0)


class Table(ABC):
    """A table in one form. `write` gets text, whole lines at a time."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._notes: list[str] = []

    @abstractmethod
    def begin(self, machine: Mapping[str, str]) -> None:
        """Writes the facts of the machine and the titles."""

    @abstractmethod
    def add(self, row: Row) -> None:
        """Writes a row."""

    def end(self) -> None:
        """Writes the notes about the rows, if they are not with these."""
        if self._notes:
            self._write("".join(f"{note}\n" for note in ["", *self._notes]))


class Plain(Table):
    """Columns of fixed widths, which longer cells exceed."""

    def begin(self, machine: Mapping[str, str]) -> None:
        facts = "".join(f"{name}: {fact}\n" for name, fact in machine.items())
        self._write(f"{facts}\n{_line(_TITLES)}")

    def add(self, row: Row) -> None:
        self._write(_line(_cells(row)))
        if row.note:
            self._notes.append(f"  {row.work}: {row.note}")


class Markdown(Table):
    def begin(self, machine: Mapping[str, str]) -> None:
        facts = ", ".join(f"{name} {fact}" for name, fact in machine.items())
        titles = f"| {' | '.join(_TITLES)} |\n| {' | '.join(['---'] * len(_TITLES))} |\n"
        self._write(f"Measured on: {facts}.\n\n{titles}")

    def add(self, row: Row) -> None:
        self._write(f"| {' | '.join(_cells(row))} |\n")
        if row.note:
            self._notes.append(f"- {row.work}: {row.note}")


class JsonLines(Table):
    """An object for the machine, then one for each row."""

    def begin(self, machine: Mapping[str, str]) -> None:
        self._write(json.dumps({"machine": dict(machine)}) + "\n")

    def add(self, row: Row) -> None:
        self._write(json.dumps(row.as_dict()) + "\n")


def _line(cells: Sequence[str]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
    return "  ".join(padded).rstrip() + "\n"


def _cells(row: Row) -> Sequence[str]:
    if isinstance(row, Failed):
        return (str(row.row), row.work, "FAILED", "", "", "", "", "")
    return (
        str(row.row),
        row.work,
        str(row.ours),
        row.peer,
        "" if row.theirs is None else str(row.theirs),
        "" if row.ratio is None else f"{row.ratio:.2f}",
        row.demanded,
        {True: "pass", False: "MISSED", None: ""}[row.passed],
    )
