"""Formats outcomes as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.bench.race import Outcome

_TITLES = ("row", "work", "ours", "peer", "theirs", "ratio", "target", "")


def plain(outcomes: Sequence[Outcome], machine: Mapping[str, str]) -> str:
    """Returns aligned columns, with the facts of the machine above and the notes below."""
    lines = [_TITLES, *(_cells(outcome) for outcome in outcomes)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    facts = [f"{name}: {fact}" for name, fact in machine.items()]
    return "\n".join([*facts, "", *table, *_notes(outcomes, "  ")])


def markdown(outcomes: Sequence[Outcome], machine: Mapping[str, str]) -> str:
    lines = [_TITLES, ["---"] * len(_TITLES), *(_cells(outcome) for outcome in outcomes)]
    table = [f"| {' | '.join(line)} |" for line in lines]
    facts = ", ".join(f"{name} {fact}" for name, fact in machine.items())
    return "\n".join([f"Measured on: {facts}.", "", *table, *_notes(outcomes, "- ")])


def _cells(outcome: Outcome) -> Sequence[str]:
    verdict = {True: "pass", False: "MISSED", None: ""}[outcome.passed]
    return (
        str(outcome.row),
        outcome.work,
        str(outcome.ours),
        outcome.peer,
        "" if outcome.theirs is None else str(outcome.theirs),
        "" if outcome.ratio is None else f"{outcome.ratio:.2f}",
        outcome.demanded,
        verdict,
    )


def _notes(outcomes: Sequence[Outcome], mark: str) -> list[str]:
    notes = [f"{mark}{o.work}: {o.note}" for o in outcomes if o.note]
    return ["", *notes] if notes else []
