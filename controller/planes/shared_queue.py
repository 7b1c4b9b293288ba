"""A bounded queue that many share: who fills it leaves room for others, and its turn comes as often as theirs."""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedQueue(Generic[T]):
    """Items that wait, by owner.

    An owner may have as many as there is room left (the dynamic threshold of Choudhury and Hahne, IEEE/ACM
    Transactions on Networking 6(2), 1998, with a factor of one): alone half of the room, of N that want more the
    N+1st part each. What is refused is thus always of who has most. Owners take turns.
    """

    def __init__(self, room: int) -> None:
        self._free = room
        self._by_owner: dict[int, deque[T]] = {}  # of those that have some, whose turn is next first

    def __bool__(self) -> bool:
        return bool(self._by_owner)

    def push(self, owner: int, item: T) -> bool:
        """Keep an item; False where its owner has too many already."""
        own = self._by_owner.get(owner)
        if (len(own) if own else 0) >= self._free:
            return False
        if own is None:
            own = self._by_owner[owner] = deque()
        own.append(item)
        self._free -= 1
        return True

    def pop(self) -> T:
        """Take the next item; StopIteration where none waits."""
        owner = next(iter(self._by_owner))
        own = self._by_owner.pop(owner)
        if len(own) > 1:
            self._by_owner[owner] = own
        self._free += 1
        return own.popleft()
