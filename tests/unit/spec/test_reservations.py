"""How a table is divided among slices, and what is said where it cannot be."""

import pytest

from controller.spec.merge import merge
from controller.spec.parse import parse
from controller.spec.reservations import Claim, divide, problems, share, share_memory, sizes_of
from controller.spec.state import Ids, State

A, B, C = ("a", "s1"), ("b", "s1"), ("c", "s1")


def test_slices_without_a_quota_get_equal_parts_of_what_is_unreserved() -> None:
    found = divide(1000, [Claim(A, 400), Claim(B, None), Claim(C, None)])
    assert (found.reserved, found.short) == ({A: 400, B: 300, C: 300}, 0)


def test_a_part_never_shrinks_below_what_is_installed() -> None:
    assert divide(1000, [Claim(A, None, used=900), Claim(B, None)]).reserved == {A: 900, B: 100}
    assert divide(1000, [Claim(A, None, used=400), Claim(B, None)]).reserved == {A: 500, B: 500}


def test_a_quota_that_was_lowered_below_what_is_installed_still_takes_that() -> None:
    assert divide(1000, [Claim(A, 300, used=800), Claim(B, None)]).reserved == {A: 800, B: 200}


def test_of_quotas_that_do_not_fit_the_largest_are_cut() -> None:
    found = divide(1000, [Claim(A, 100), Claim(B, 900), Claim(C, 700)])
    assert (found.reserved, found.short) == ({A: 100, B: 450, C: 450}, 700)


def test_what_is_installed_is_kept_by_a_cut() -> None:
    found = divide(1000, [Claim(A, 900, used=800), Claim(B, 900)])
    assert (found.reserved, found.short) == ({A: 800, B: 200}, 800)


def test_slices_that_overcommit_share_the_parts_that_they_would_have() -> None:
    overcommitting = [Claim(B, 900, overcommits=True), Claim(C, 800, overcommits=True)]
    found = divide(1000, [Claim(A, 400), *overcommitting])
    assert (found.reserved[A], found.pool, found.short) == (400, 600, 0)
    found = divide(1000, [Claim(A, None), Claim(B, 100, overcommits=True)])
    assert found.reserved == {A: 900, B: 100}


def test_what_one_borrows_of_the_pool_is_not_taken_from_those_that_do_not_overcommit() -> None:
    borrowing = [Claim(B, 900, used=600, overcommits=True), Claim(C, 900, overcommits=True)]
    found = divide(900, [Claim(A, None), *borrowing])
    assert (found.reserved[A], found.pool) == (300, 600)


TEXT = """\
version: 1
planes: [{name: s1, kind: fake, capacity: {ipv4_route: 100000}}]
tenants:
  - {name: red, slices: [{plane: s1, quota: {ipv4_routes: 60000}}]}
  - {name: blue, slices: [{plane: s1, quota: {ipv4_routes: 30000, memory: 1000000}}]}
"""


def laid(text: str, over: State | None = None) -> State:
    return merge(parse(text, "t.yaml"), over or State(), Ids(), {})[0]


def complaints(text: str, before: State | None = None, memory: int = 0, **used: int) -> list[str]:
    before = before or State()
    usage = {"s1": {tenant: {"ipv4_routes": count} for tenant, count in used.items()}}
    return [problem for _, problem in problems(before, laid(text, before), usage, memory)]


def test_quotas_that_fit_are_no_problem() -> None:
    assert complaints(TEXT) == []
    state = laid(TEXT)
    limits = share(state, "s1", {}).limits
    assert (limits["red"].ipv4_routes, limits["blue"].ipv4_routes) == (60_000, 30_000)
    assert limits["red"].nexthops == 4096  # of nothing that is known


def test_what_does_not_fit_is_one_line_with_slice_table_sum_and_remedy() -> None:
    (line,) = complaints(TEXT.replace("30000", "50000"))
    assert line == (
        "slice red@s1: table ipv4_route of plane s1 has room for 100,000, and quotas ipv4_routes with what is "
        "installed come to 112,048 (red@s1 61,024, blue@s1 51,024); lower one, leave it out for an equal part, or "
        "say overcommit: true"
    )
    green = "version: 1\ntenants: [{name: green, slices: [{plane: s1, quota: {ipv4_routes: 20000}}]}]"
    (line,) = complaints(green, laid(TEXT))
    assert line.startswith("slice green@s1: table ipv4_route of plane s1 has room for 100,000")


def test_what_is_installed_counts_where_it_is_more_than_a_quota() -> None:
    fewer = "version: 1\ntenants: [{name: red, slices: [{plane: s1, quota: {ipv4_routes: 10000}}]}]"
    before = laid(fewer, laid(TEXT))
    more = "version: 1\ntenants: [{name: blue, slices: [{plane: s1, quota: {ipv4_routes: 60000}}]}]"
    assert complaints(more, before) == []
    assert "red@s1 50,000" in complaints(more, before, red=50_000)[0]
    assert "gone@s1 40,000" in complaints(more, before, gone=40_000)[0]


def test_overcommit_takes_the_quota_out_of_the_sum() -> None:
    text = TEXT.replace("30000, memory: 1000000}}", "90000}, overcommit: true}")
    assert complaints(text) == []
    shares = share(laid(text), "s1", {})
    assert shares.limits["blue"].ipv4_routes == 90_000
    assert shares.pool["ipv4_routes"] == shares.reserved["blue"]["ipv4_routes"] == 100_000 - 61_024


def test_a_change_that_has_nothing_to_do_with_it_is_not_refused() -> None:
    before = laid(TEXT.replace("30000", "50000"))  # as after a plane turned out to be smaller
    other = "version: 1\ntenants: [{name: green, slices: [{plane: s1}]}]"
    assert complaints(other, before) == []
    assert complaints(TEXT, before) == []  # less than before, though it is still too much or not


def test_memory_is_the_controllers_and_divided_over_all_planes() -> None:
    assert complaints(TEXT, memory=2_000_000) == []
    (line,) = complaints(TEXT, memory=900_000)
    assert line.startswith("slice blue@s1: the controller's memory, in octets, has room for 900,000")
    usage = {"s1": {"red": {"memory": 300_000}, "gone": {"memory": 200_000}}}
    ((_, line),) = problems(State(), laid(TEXT), usage, 1_400_000)
    assert "come to 1,500,000 (blue@s1 1,000,000, red@s1 300,000, gone@s1 200,000); lower one" in line


def test_a_deleted_tenant_has_its_memory_until_its_plane_is_back_and_may_be_declared_again() -> None:
    before, usage = laid(TEXT), {"s1": {"red": {"memory": 900_000}, "green": {"memory": 400_000}}}
    found = share_memory(before, 2_000_000, usage)
    assert (sum(found.reserved.values()), found.short) == (2_000_000, 300_000)
    again = laid("version: 1\ntenants: [{name: green, slices: [{plane: s1}]}]", before)
    assert list(problems(before, again, usage, 1_000_000)) == []


@pytest.mark.parametrize(("quota", "wrong"), [(2, []), (1, ["slice red@s1 has 2 interfaces and a quota interfaces"])])
def test_interfaces_beyond_their_quota_are_refused(quota: int, wrong: list[str]) -> None:
    interfaces = "interfaces: [{name: e0, port: p1}, {name: e1, port: p2}]"
    ports = "ports: {p1: [untagged], p2: [untagged]}"
    router = f"routers: [{{name: r1, plane: s1, {interfaces}}}]"
    text = f"version: 1\nplanes: [{{name: s1, kind: fake}}]\ntenants: [{{name: red, slices: [{{plane: s1, {ports}, "
    text += f"quota: {{interfaces: {quota}}}}}], {router}}}]"
    found = complaints(text)
    assert [line[: len(start)] for line, start in zip(found, wrong, strict=True)] == wrong


def test_a_fallback_has_the_tables_that_are_divided() -> None:
    text = """\
version: 1
planes:
  - {name: s1, datapath_id: 1, fallback: {plane: sw, port: a, peer_port: b}, capacity: {ipv4_route: 1000}}
  - {name: sw, datapath_id: 2, capacity: {ipv4_route: 50000}}
tenants:
  - {name: red, slices: [{plane: s1, quota: {hardware_ipv4_routes: 600}}]}
"""
    state = laid(text)
    assert sizes_of(state, "s1")["ipv4_route"] == 50_000
    assert share(state, "s1", {}).limits["red"].ipv4_routes == 50_000 - 1024
    blue = "version: 1\ntenants: [{name: blue, slices: [{plane: s1, quota: {hardware_ipv4_routes: 500}}]}]"
    (line,) = complaints(blue, state)
    assert line.startswith("slice blue@s1: table ipv4_route of plane s1, in hardware, has room for 1,000")
