"""Start-time fair queueing: whose turn it is among members whose work costs what is known only afterwards.

    start of a member = where its last piece of work ended, in the queue's virtual time
    whose turn it is  = who has the earliest start; the virtual time is that start
    a piece of work   ─► moves its member's start by what it cost

Who has more to do as soon as it was served may go on for a while, the run, before that is looked at: what it works on
is in the caches then.

P. Goyal, H. M. Vin, H. Cheng, "Start-time Fair Queuing", SIGCOMM 1996. It divides as deficit round robin does, but
without rounds: who comes anew begins at the virtual time, so it waits for one piece or run of the others and not for
a round of them. Who has left and comes back after a few turns keeps the start that it had: it asks for one thing at a
time.
"""

import heapq
from itertools import count
from typing import Generic, Protocol, TypeVar

MOST_LAG_S, MOST_LEAD_S = 0.02, 1.0
"""How far the start of a member may be behind and ahead of the virtual time."""

_BEFORE_ALL_S = -1.0
"""The place in the queue of whoever goes on: before any start."""

RETURN_TURNS = 4
"""Within how many turns one has to come back to have what it did not use meanwhile."""


class Member(Protocol):
    """Who waits in a fair queue."""

    start_s: float
    """Where its next piece of work begins, in virtual time."""
    queued: bool
    """Whether it is in the queue."""
    left_in: int
    """The turn in which it left."""


M = TypeVar("M", bound=Member)


class FairQueue(Generic[M]):
    """The members that wait. What they cost is said by `charge`, also of those that do not wait.

    ``run_s`` is how long one may go on that comes back while nobody else was served.
    """

    def __init__(self, run_s: float = 0.0) -> None:
        self.now_s = 0.0  # the virtual time
        self._run_s, self._ran_s = run_s, 0.0
        self._runs: M | None = None  # who was served last
        self._heap: list[tuple[float, bool, int, M]] = []  # by start, of which it may have got a later one since
        self._numbers = count()
        self._left: list[tuple[float, int, int, M]] = []  # who left lately and in which turn, by start

    def __bool__(self) -> bool:
        return bool(self._heap)

    def push(self, one: M, turn: int) -> None:
        """Let a member wait, if it does not; of several with one start, who comes anew goes first."""
        if one.queued:
            return
        earliest_s = self.now_s - (MOST_LAG_S if turn - one.left_in <= RETURN_TURNS else 0.0)
        anew = one.start_s < earliest_s
        one.start_s = max(one.start_s, earliest_s)
        one.queued = True
        start_s = _BEFORE_ALL_S if one is self._runs and self._ran_s < self._run_s else one.start_s
        heapq.heappush(self._heap, (start_s, not anew, next(self._numbers), one))

    def first(self) -> M:
        """Return whose turn it is; it stays in the queue."""
        heap = self._heap
        while _BEFORE_ALL_S < heap[0][0] < (one := heap[0][-1]).start_s:  # it was charged while it waited
            heapq.heapreplace(heap, (one.start_s, True, next(self._numbers), one))
        return heap[0][-1]

    def pop(self) -> M:
        """Take off whose turn it is; the virtual time goes on to its start, unless it is one that goes on."""
        one = self.first()
        if heapq.heappop(self._heap)[0] > _BEFORE_ALL_S:
            self._runs, self._ran_s = one, 0.0
            self.now_s = max(self.now_s, one.start_s)
        one.queued = False
        return one

    def leave(self, one: M, turn: int) -> None:
        """Note that a member has had a piece of work, and has nothing more to do for now."""
        one.left_in = turn
        self._forget_returned(turn)
        heapq.heappush(self._left, (one.start_s, next(self._numbers), turn, one))

    def is_ahead(self, one: M, turn: int, by_s: float) -> bool:
        """Tell whether a member would be ahead, by more than so much, of one that has left and may come back."""
        self._forget_returned(turn)
        return bool(self._left) and one.start_s > self._left[0][0] + by_s

    def _forget_returned(self, turn: int) -> None:
        """Forget who came back, or did not within the time for that, of those that were the first to be served."""
        left = self._left
        while left and (left[0][-1].queued or left[0][2] != left[0][-1].left_in or turn - left[0][2] > RETURN_TURNS):
            heapq.heappop(left)

    def charge(self, one: M, took_s: float) -> None:
        """Move a member's start by what it took; where nobody else waits, nobody has a claim on that."""
        if one is self._runs:
            self._ran_s += took_s
        start_s, now_s = one.start_s, self.now_s
        if start_s < now_s - MOST_LAG_S:
            start_s = now_s - MOST_LAG_S
        start_s += took_s
        one.start_s = start_s if start_s < now_s + MOST_LEAD_S else now_s + MOST_LEAD_S
        if not self._heap and one.start_s > now_s:
            self.now_s = one.start_s
