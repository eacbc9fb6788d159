"""Which points in time a backup keeps: the newest of each of the last hours, days, weeks or months.

Hours, days, weeks and months are those of UTC. Only those that have a point count, so that a backup
that was paused for a month loses nothing. Weeks begin on Monday.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final


@dataclass(frozen=True, slots=True)
class Keep:
    """How many points to keep: the `last` ones, and the newest of each hour, day, week and month.
    All that one of the rules keeps are kept, and always the newest."""

    last: int = 0
    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0

    def __bool__(self) -> bool:
        return any((self.last, self.hourly, self.daily, self.weekly, self.monthly))

    def kept(self, times: Sequence[int]) -> dict[int, list[str]]:
        """Returns which of the points to keep, by their times in ms since 1970, and the rules that
        keep each."""
        newest_first = sorted(times, reverse=True)
        found: dict[int, list[str]] = {}
        for rule, period in _PERIODS.items():
            count: int = getattr(self, rule)
            seen: set[Hashable] = set()
            for time_ms in newest_first:
                of = period(time_ms)
                if of not in seen and len(seen) < count:
                    seen.add(of)
                    found.setdefault(time_ms, []).append(rule)
        if newest_first and newest_first[0] not in found:
            found[newest_first[0]] = ["newest"]
        return found


def _time(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms // 1000, UTC)


# The period that a time belongs to, by the rule that keeps one point of each.
_PERIODS: Final[dict[str, Callable[[int], Hashable]]] = {
    "last": lambda time_ms: time_ms,
    "hourly": lambda time_ms: time_ms // 3_600_000,
    "daily": lambda time_ms: time_ms // 86_400_000,
    "weekly": lambda time_ms: _time(time_ms).isocalendar()[:2],
    "monthly": lambda time_ms: (_time(time_ms).year, _time(time_ms).month),
}
