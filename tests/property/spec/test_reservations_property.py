"""However slices come, go, grow and change their quotas: a table is never given twice, and nobody's part is less
than it has installed or asked for."""


from hypothesis import given
from hypothesis import strategies as st

from controller.spec.reservations import Claim, Division, Key, divide

MOST = 400
quotas = st.one_of(st.none(), st.integers(0, MOST))
claims = st.builds(
    lambda name, quota, used, overcommits: Claim((f"t{name}", "s1"), quota, used, overcommits),
    st.integers(0, 5),
    quotas,
    st.integers(0, MOST // 2),
    st.booleans(),
)


def checked(room: int, found: Division, of: list[Claim]) -> None:
    held = sum(claim.used for claim in of)
    assert sum(found.reserved.values()) <= max(room, held)
    for claim in of:
        part = found.reserved[claim.key]
        if claim.overcommits:
            continue
        assert part >= claim.used
        if claim.firm and not found.short:
            assert part == max(claim.quota or 0, claim.used)
        if claim.quota is not None:
            assert part <= max(claim.quota, claim.used)
    pooled = [claim for claim in of if claim.overcommits]
    assert found.pool >= sum(claim.used for claim in pooled)
    unsaid = [
        found.reserved[claim.key] for claim in of if claim.quota is None and not (claim.used or claim.overcommits)
    ]
    assert max(unsaid, default=0) == min(unsaid, default=0)
    if unsaid and held <= room and not found.short:  # nothing that could be given is kept back
        kept = sum(found.reserved[claim.key] for claim in of if not claim.overcommits)
        assert 0 <= room - kept - found.pool < len(of)


@given(st.integers(0, MOST), st.lists(claims, max_size=6, unique_by=lambda claim: claim.key))
def test_who_overcommits_takes_nothing_of_who_does_not(room: int, of: list[Claim]) -> None:
    """Whatever they have installed within their pool, all other parts stay as they are."""
    idle = [claim._replace(used=0) if claim.overcommits else claim for claim in of]
    before = divide(room, idle)
    left = before.pool
    busy = []
    for claim in idle:
        used = left if claim.overcommits else claim.used
        left -= used if claim.overcommits else 0
        busy.append(claim._replace(used=used))
    after = divide(room, busy)
    if not before.short:
        assert (after.reserved, after.pool, after.short) == (before.reserved, before.pool, 0)


@given(st.integers(0, MOST), st.lists(claims, max_size=6, unique_by=lambda claim: claim.key))
def test_a_division_gives_nothing_twice(room: int, of: list[Claim]) -> None:
    checked(room, divide(room, of), of)


Step = tuple[str, int, int | None, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(("apply", "drop", "learn", "withdraw")), st.integers(0, 4), quotas, st.integers(1, MOST)
    ),
    max_size=40,
)


@given(st.integers(1, MOST), steps)
def test_who_is_under_quota_is_never_refused_because_of_another(room: int, script: list[Step]) -> None:
    """Slices of one table are declared as `apply` would, and insert up to their limits: whatever a part allows
    has room in the table."""
    declared: dict[Key, int | None] = {}
    used: dict[Key, int] = {}

    def asked(of: dict[Key, int | None]) -> list[Claim]:
        gone = [Claim(key, 0, count) for key, count in used.items() if key not in of and count]
        return [Claim(key, quota, used.get(key, 0)) for key, quota in of.items()] + gone

    for what, number, quota, count in script:
        key = (f"t{number}", "s1")
        if what == "apply":
            after = declared | {key: quota}
            if divide(room, asked(after)).short <= divide(room, asked(declared)).short:
                declared = after
        elif what == "drop":
            declared.pop(key, None)
        elif what == "withdraw":
            used[key] = max(0, used.get(key, 0) - count)
        elif key in declared:
            part, said = divide(room, asked(declared)).reserved[key], declared[key]
            more = min(count, (part if said is None else min(said, part)) - used.get(key, 0))
            used[key] = used.get(key, 0) + max(0, more)
            assert sum(used.values()) <= room  # the plane itself had to refuse nothing
        found = divide(room, asked(declared))
        assert not found.short
        assert sum(found.reserved.values()) <= room
