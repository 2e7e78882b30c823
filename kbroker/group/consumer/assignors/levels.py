"""Who has the fewest and who has the most partitions, while partitions are moving.

Members are sorted by how many they have. At the low end is a range of members that have the same
number; each is handed out once, then the level has risen by one and the range takes in those that
are on it already. The range at the high end falls in the same way; a member in it that has nothing
to give is put behind the range.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Levels:
    """`sizes[member]` is how many partitions a member has; the caller keeps it up to date."""

    def __init__(self, sizes: Sequence[int], members: Iterable[int]) -> None:
        self._sizes = sizes
        self._sorted = sorted(members, key=lambda member: (sizes[member], member))
        low, high = sizes[self._sorted[0]], sizes[self._sorted[-1]]
        self.imbalance = high - low
        self._low_end = 0
        self._low_level = low - 1
        self._low_next = 0
        self._high_start = self._high_end = len(self._sorted)
        self._high_level = high + 1
        self._high_next = len(self._sorted) - 1

    def next_least(self) -> int:
        """A member with the fewest; it is taken to get one."""
        if self._low_next >= self._low_end:
            self._low_level += 1
            while (
                self._low_end < len(self._sorted)
                and self._sizes[self._sorted[self._low_end]] == self._low_level
            ):
                self._low_end += 1
            self._low_next = 0
        member = self._sorted[self._low_next]
        self._low_next += 1
        return member

    def next_most(self) -> int | None:
        """A member with the most; it is taken to give one away. None where nobody can."""
        if self._high_next < self._high_start:
            if self._high_end <= self._high_start and self._high_start > 0:
                # All of the range were excluded: go on with whoever is below it.
                self._high_level = self._sizes[self._sorted[self._high_start - 1]]
            else:
                self._high_level -= 1
            while (
                self._high_start > 0
                and self._sizes[self._sorted[self._high_start - 1]] == self._high_level
            ):
                self._high_start -= 1
            self._high_next = self._high_end - 1
        if self._high_next < 0:
            return None
        member = self._sorted[self._high_next]
        self._high_next -= 1
        return member

    def exclude_most(self) -> None:
        """The member that `next_most` gave last has nothing to give."""
        at, end = self._high_next + 1, self._high_end - 1
        self._sorted[at], self._sorted[end] = self._sorted[end], self._sorted[at]
        self._high_end = end

    @property
    def balanced(self) -> bool:
        """No move would make the two ends more even."""
        return self._high_level - self._low_level <= 1
