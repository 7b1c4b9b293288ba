"""What a plane has room for, as far as it is known: what is said of it, or less where it refused a write.

    said ─► refused: what it held then ─► FIRST_WAIT_S later, if used up: some more ─► NEXT_S later: twice as many …
                       ▲                                                                      │
                       └────────── refused, and in vain: the next time after twice as long ◄──┘

A refusal tells of one moment. A plane may need more for one entry than for another, or free what has left a while
after it said so: what was learned then would keep routes in software for good.
"""

from math import inf

FIRST_WAIT_S, LONGEST_WAIT_S = 30.0, 3600.0
"""How long after a refusal more is asked for; at first, and at most, where that was in vain."""

FIRST_MORE = 16
"""Entries more that are asked for at first."""

NEXT_S = 1.0
"""How long after that, where nothing was refused, twice as many are."""


class Capacity:
    """The entries that one table has room for; ``said`` is what the plane or its operator says of it."""

    def __init__(self, said: int) -> None:
        self.say(said)

    def say(self, said: int) -> None:
        """Believe what is said, whatever was learned."""
        self.known = self._said = self._before = said
        self._refused, self._asked, self._wait_s, self._due_s = False, 0, FIRST_WAIT_S, inf

    def refuse(self, held: int) -> None:
        """Learn that there is no room for more than what the plane held."""
        self.known = min(self.known, held)
        self._refused = True

    def grow(self, now: float, used_up: bool) -> bool:
        """Have room for more than was learned, where that is used up and it is time to; tell whether there is."""
        if self._refused:
            in_vain = self._asked > 0 and self.known <= self._before
            self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S) if in_vain else FIRST_WAIT_S
            self._refused, self._asked, self._due_s = False, 0, now + self._wait_s
        if self.known >= self._said or now < self._due_s or not used_up:
            return False
        if not self._asked:
            self._before = self.known
        self.known = min(self._said, self.known + (FIRST_MORE << self._asked))
        self._asked += 1
        self._due_s = now + NEXT_S
        return True
