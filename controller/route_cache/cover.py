"""One router's routes of one family in hardware, with the covers that keep them right.

    full       10.0.0.0/8 → A,  10.1.0.0/16 → B,  10.1.2.0/24 → C,  10.9.0.0/16 → D
    hardware    0.0.0.0/0 → FALLBACK                     what is not in hardware goes to the fallback plane
               10.0.0.0/8 → A                            an entry
               10.1.0.0/16 → FALLBACK                    its cover: the longer prefix is in software
               10.1.2.0/24 → C                           an entry again, below the cover
               10.9.0.0/16 → D                           a longer prefix with none inside takes no more than its cover

An entry may also stand for a part of a prefix that is free of longer ones: 10.128.0.0/9 → A needs no cover at all.

Kept at every moment:
    1. An entry that is not FALLBACK has the action that the full table gives to its own prefix.
    2. Of each prefix of the full table that has no such entry, the nearest entry at or around it is FALLBACK.
So every address gets in hardware its result in the full table, or FALLBACK. For let e be the entry it matches, not
FALLBACK, and p the prefix it matches in the full table: were p inside e and longer, then by 2 a FALLBACK entry would
be at p or between the two and match instead. So p is e's prefix or that which e is a part of, and 1 says the rest.

From one such table to the next goes controller/route_cache/write_order.py.
"""

from collections.abc import Container, Mapping

from controller.planes.base import FALLBACK
from controller.route_cache.prefix_tree import PrefixTree
from controller.route_cache.write_order import Changes

UNLIMITED = 1 << 62
"""The room of a slice that has no quota."""
MAX_COVER = 32
"""Covers that a prefix may need to enter; one that needs more enters in parts."""
MAX_PARTS = 32
"""Parts of one prefix in hardware: all of them change with it."""
MAX_WRITES = MAX_PARTS + 1
"""Writes that one changed prefix causes at once: its own, and those of its parts."""


class Room:
    """The entries that may be in use: of a plane, of all slices without a quota, or of a slice; ``around`` it is that
    in which it is, None for a plane's.

    Inside one change, what is deleted frees no room: deletes come last. Nor does what has left and is still there.
    """

    def __init__(self, capacity: int, reserve: int | None = None, around: "Room | None" = None) -> None:
        self.capacity = capacity
        self.used = 0
        self.writes = 0
        self.awaited = 0
        """Entries of candidates that wait for the next change, when what has left is free."""
        self.wanted = 0
        """Entries that the routers want that are in it, and in none inside it."""
        self._leaving = 0  # entries that the plane still has, though they have left
        self.around, self._reserve = around, reserve
        self._spare = capacity

    @property
    def spare(self) -> int:
        """The entries that this change may add; below 0 where more are in use than may be."""
        return self._spare if self.around is None else min(self._spare, self.around.spare)

    @property
    def free(self) -> int:
        """The entries that this change may add besides the reserve."""
        free = self._spare - self.reserve
        return free if self.around is None else min(free, self.around.free)

    @property
    def held(self) -> int:
        """The entries in use, and those that the plane still has though they have left."""
        return self.used + self._leaving

    @property
    def excess(self) -> int:
        """How many entries have to go, the awaited ones and the reserve having room; below 0 where there is more."""
        return self.used + self.awaited + self.reserve - self.capacity

    @property
    def reserve(self) -> int:
        """The entries that are kept free for what changes of routes need at once: of a plane 4 at least."""
        if self._reserve is not None:
            return self._reserve
        return max(4 if self.around is None else 0, self.capacity // 200)

    @property
    def chain(self) -> "tuple[Room, ...]":
        """This one, what is around it, and so on to the plane's."""
        return (self,) if self.around is None else (self, *self.around.chain)

    def move(self, around: "Room") -> None:
        """Be inside another room of the same plane."""
        if self.around is around or self.around is None:
            return
        for rooms, sign in ((self.around.chain, -1), (around.chain, 1)):
            for room in rooms:
                room.used += sign * self.used
                room._leaving += sign * self._leaving
        self.around = around

    def begin(self) -> None:
        """Begin a change: what was deleted before is free."""
        self._spare = self.capacity - self.used - self._leaving
        self.writes = self.awaited = 0
        if self.around is not None:
            self.around.begin()

    def add(self, entries: int, spare: int) -> None:
        """Count entries more, or less, that take or leave ``spare`` of what this change may add."""
        self.used += entries
        self._spare -= spare
        if self.around is not None:
            self.around.add(entries, spare)

    def leave(self, entries: int) -> None:
        """Count entries more, or less, that the plane still has though they have left."""
        self._leaving += entries
        if self.around is not None:
            self.around.leave(entries)

    def write(self) -> None:
        """Count a write of this change."""
        self.writes += 1
        if self.around is not None:
            self.around.write()


class CoveredTable:
    """The full table of one router and family, and what of it is in hardware."""

    def __init__(self, family: int, room: Room) -> None:
        self.full = PrefixTree(family)
        self.hardware = PrefixTree(family)
        """The hardware table, covers included."""
        self.refused: set[bytes] = set()
        """Prefixes that are in software because the plane did not take their action."""
        self.loose: set[bytes] = set()
        """Entries that may not be needed any more."""
        self._parts: dict[bytes, set[bytes]] = {}  # prefix → its parts in hardware
        self._part_of: dict[bytes, bytes] = {}
        self.room = room
        self._written: Changes = {}
        self._write(self.hardware.default, FALLBACK)

    def take_writes(self) -> Changes:
        """Return what was written since the last call."""
        written, self._written = self._written, {}
        return {key: change for key, change in written.items() if change[0] != change[1]}

    def forwards(self, key: bytes) -> bool:
        """Tell whether ``key`` is an entry of the hardware table that is not FALLBACK."""
        return self.hardware.actions.get(key, FALLBACK) != FALLBACK

    def parts(self, key: bytes) -> int:
        """Return how many parts of a prefix are in hardware."""
        return len(self._parts.get(key, ()))

    def all_parts(self) -> int:
        """Return how many entries are parts of a prefix."""
        return len(self._part_of)

    def has_room(self, entries: int) -> bool:
        """Tell whether so many more entries have room, in the plane and in the slice."""
        return entries <= self.room.spare

    def change(self, changes: Mapping[bytes, int | None]) -> None:
        """Change the full table, and in hardware at most MAX_WRITES entries for each changed prefix."""
        new = [key for key, action in changes.items() if action is not None and key not in self.full]
        self.full.update(changes)
        if self._parts:
            self._reassign_parts(changes, new)
        self.refused.difference_update(changes)
        for key in sorted(
            changes, key=_length, reverse=True
        ):  # longest first: then none inside is left to be covered
            self._repair(key)

    def uncovered(self, key: bytes) -> list[bytes] | None:
        """Return the prefixes that would need a cover if ``key`` entered; None for more than MAX_COVER."""
        found = []
        for inner in self.full.inside(key):
            if inner in self.hardware:
                continue
            around = self.hardware.above(inner)
            if around is not None and around[-1] > key[-1]:
                continue  # a cover between the two
            found.append(inner)
            if len(found) > MAX_COVER:
                return None
        return found

    def outermost(self, key: bytes, leaving: Container[bytes] = ()) -> bytes:
        """Return the entry around which only covers stay, of those that ``key`` depends on."""
        while (around := self.hardware.above(key)) is not None and self.forwards(around) and around not in leaving:
            key = around
        return key

    def enter(self, key: bytes, cover: list[bytes]) -> None:
        """Bring a prefix, or a free part of one, into hardware. ``cover`` is what uncovered() returned; room for both
        has been seen to.
        """
        for inner in cover:
            self._write(inner, self._cheapest(inner))
        action = self.full.actions.get(key)
        if action is None:
            home = self.full.above(key)
            if home is None:
                raise ValueError(f"{key.hex()} is no part of a prefix")
            action = self.full.actions[home]
            self._assign_part(key, home)
        self._write(key, action)
        self.loose.update(self._parts.get(key, ()))
        self._loosen_cover(key)

    def leave(self, key: bytes) -> None:
        """Take an entry out of hardware; it becomes a cover where a shorter prefix needs that."""
        around = self.hardware.above(key)
        covers = around is None or self.forwards(around)
        self._loosen(key)
        self._write(key, FALLBACK if covers else None)
        if covers and around is not None:
            self.loose.add(key)

    def tidy(self, key: bytes) -> None:
        """Delete an entry that is not needed any more; one write at most."""
        around = self.hardware.above(key)
        if around is None or key not in self.hardware:
            return
        if self.forwards(key):
            if key in self._part_of and self.forwards(around):  # the prefix is there as a whole
                self._write(key, None)
        elif not self.forwards(around) or (key not in self.full and not self._is_needed(key)):
            self._write(key, None)

    def refuse(self, key: bytes, full: bool) -> None:
        """Do without an entry that the plane did not take; ``full`` says that it has no room for any."""
        if key == self.hardware.default and not self.forwards(key):
            raise ValueError("a router without its default entry cannot be in hardware")
        around = self.hardware.above(key)
        if self.forwards(key):
            if not full:
                self.refused.add(self._part_of.get(key, key))
            if around is None or (not full and self.forwards(around)):
                self._loosen(key)
                self._write(key, FALLBACK)
                return
            self._loosen(key)
        if key in self.hardware:
            self._write(key, None)
            if around is not None and self.forwards(around):
                self._loosen(around)
                self._write(around, FALLBACK)
                self.loose.add(around)

    def clear(self) -> None:
        """Take everything out of hardware, the default entry too."""
        for key in list(self.hardware.actions):
            self._write(key, None)

    def _repair(self, key: bytes) -> None:
        """See to 1 and 2 for one prefix that changed."""
        action = self.full.actions.get(key)
        if self.forwards(key):
            if action is not None:
                self._write(key, action)
            else:
                self._loosen(key)
                self._write(key, FALLBACK if key == self.hardware.default else None)
        elif key in self.hardware:
            if action is None:
                self.tidy(key)
        elif action is None:
            self._loosen_cover(key)
        else:
            around = self.hardware.above(key)
            if around is None or not self.forwards(around):
                return
            if self.has_room(1):
                self._loosen(key)  # what covers inside of it, its own cover does as well
                self._write(key, self._cheapest(key))
            else:
                self.leave(around)

    def _cheapest(self, key: bytes) -> int:
        """Return the action of an entry that has to be: the prefix's own where that needs no further cover."""
        return self.full.actions[key] if key not in self.refused and self.full.free(key) else FALLBACK

    def _reassign_parts(self, changes: Mapping[bytes, int | None], new: list[bytes]) -> None:
        """Give parts the prefix that they are now of, outermost prefixes first, and its action."""
        for key, action in changes.items():
            if action is None:
                for part in list(self._parts.get(key, ())):
                    self._loosen(part)
                    self._write(part, None)
            elif key in self._parts:
                for part in self._parts[key]:
                    self._write(part, action)
        for key in sorted(new, key=_length):
            home = self.full.above(key)
            for part in [part for part in self._parts.get(home or b"", ()) if self.full.holds(key, part)]:
                self._forget_part(part)
                if part != key:
                    self._assign_part(part, key)
                    self._write(part, self.full.actions[key])

    def _loosen(self, key: bytes) -> None:
        """Note that the covers below an entry are not needed without it, nor a cover of its own."""
        self.loose.update(inner for inner in self.hardware.inside(key) if not self.forwards(inner))

    def _loosen_cover(self, key: bytes) -> None:
        """Note that the cover around a prefix may not be needed any more without it, or since it has an entry."""
        around = self.hardware.above(key)
        if around is not None and around not in self.full and not self.forwards(around):
            self.loose.add(around)

    def _is_needed(self, cover: bytes) -> bool:
        """Tell whether prefixes without entries would have none around them that is FALLBACK without a cover."""
        hardware = self.hardware
        return any(inner not in hardware and hardware.above(inner) == cover for inner in self.full.inside(cover))

    def _assign_part(self, part: bytes, home: bytes) -> None:
        self._part_of[part] = home
        self._parts.setdefault(home, set()).add(part)

    def _forget_part(self, part: bytes) -> None:
        home = self._part_of.pop(part)
        self._parts[home].discard(part)
        if not self._parts[home]:
            del self._parts[home]

    def _write(self, key: bytes, action: int | None) -> None:
        old = self.hardware.actions.get(key)
        if old == action:
            return
        if key not in self._written:
            self.room.write()
        before = self._written.setdefault(key, (old, None))[0]
        self._written[key] = (before, action)
        if old is None:
            assert action is not None
            self.hardware.set(key, action)
            self.room.add(1, int(before is None))
        elif action is None:
            self.hardware.remove(key)
            self.room.add(-1, -int(before is None))
        else:
            self.hardware.set(key, action)
        if action in {None, FALLBACK} and key in self._part_of:
            self._forget_part(key)


def _length(key: bytes) -> int:
    return key[-1]
