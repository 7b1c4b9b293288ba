"""Shares of a document: what they mean, and which are refused, each in one line with its line and remedy."""

from dataclasses import replace

import pytest

from controller.errors import SpecError
from controller.model import USUAL_SHARE, Share
from controller.spec.changes import changes
from controller.spec.check import check, line_of
from controller.spec.merge import merge
from controller.spec.parse import parse
from controller.spec.shares import unsupported
from controller.spec.state import Ids, State

TEXT = """\
version: 1
planes: [{name: s1, kind: fake}]
tenants:
  - name: red
    slices:
      - plane: s1
        share: {weight: 3, guarantee: 40 %, ceiling: "90%"}
    routers:
      - name: r1
        plane: s1
        share: {weight: 2, guarantee: 25 %}
      - name: r2
        plane: s1
        share: {guarantee: 2.5 %}
  - name: blue
    slices: [{plane: s1}]
    routers:
      - {name: r1, plane: s1, share: {guarantee: 50 %}}
"""


def laid(text: str, over: State | None = None, ids: Ids | None = None) -> State:
    state, where = merge(parse(text, "net.yaml"), over or State(), ids or Ids(), {})
    check(state, where)
    return state


def refusal(old: str, new: str) -> str:
    assert old in TEXT
    with pytest.raises(SpecError) as caught:
        laid(TEXT.replace(old, new))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_parts_are_of_the_whole_and_a_router_knows_its_slice() -> None:
    state = laid(TEXT)
    slice_share = Share(3, 400_000, 900_000)
    red, blue = state.tenants["red"].slices[0], state.tenants["blue"].slices[0]
    assert (red.share, blue.share) == (slice_share, USUAL_SHARE)
    assert 0 not in (red.id, blue.id)
    assert red.id != blue.id
    router = state.routers["red/r1"]
    assert (router.share, router.slice_id, router.slice_share) == (Share(2, 250_000), red.id, slice_share)
    assert state.routers["red/r2"].share == Share(1, 25_000)
    assert str(slice_share) == "weight 3, guarantee 40 %, ceiling 90 %"
    assert str(state.routers["red/r2"].share) == "weight 1, guarantee 2.5 %"


def test_a_slice_keeps_its_id_and_another_one_never_gets_it() -> None:
    ids = Ids()
    state = laid(TEXT, ids=ids)
    again = laid(TEXT.replace("weight: 3", "weight: 4"), state, ids)
    assert again.tenants["red"].slices[0].id == state.tenants["red"].slices[0].id
    assert again.routers["red/r2"].slice_share.weight == 4
    without = replace(again, tenants={"blue": again.tenants["blue"]}, routers={})
    assert laid(TEXT, without, ids).tenants["red"].slices[0].id not in (1, 2)


def test_a_share_that_changes_is_said_once_where_it_changed() -> None:
    state = laid(TEXT)
    after = laid(TEXT.replace("weight: 3", "weight: 4").replace("weight: 2", "weight: 5"), state)
    said = {(change.kind, change.name): change.details for change in changes(state, after)}
    assert said == {
        ("slice", "red@s1"): [
            "share weight 3, guarantee 40 %, ceiling 90 % → weight 4, guarantee 40 %, ceiling 90 %"
        ],
        ("router", "red/r1"): ["share weight 2, guarantee 25 % → weight 5, guarantee 25 %"],
    }


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("weight: 3", "weight: 0", "net.yaml:7: weight: 0 should be greater than or equal to 1"),
        ("weight: 3", "weight: 1001", "net.yaml:7: weight: 1001 should be less than or equal to 1000"),
        (
            "guarantee: 40 %",
            "guarantee: 140 %",
            "net.yaml:7: guarantee: 140 % is no part of the whole; give more than",
        ),
        (
            "guarantee: 40 %",
            "guarantee: 0 %",
            "net.yaml:7: guarantee: 0 % is no part of the whole; give more than 0 %",
        ),
        ("guarantee: 40 %", "guarantee: 40", "net.yaml:7: guarantee: 40 should be a part of the whole such as 10 %"),
        ("guarantee: 40 %", "guarantee: half", "'half' should be a part of the whole such as 10 % or 2.5 %"),
        ("weight: 3", "wight: 3", "net.yaml:7: unknown key 'wight'; known here: weight, guarantee, ceiling"),
        (
            'ceiling: "90%"',
            "ceiling: 30 %",
            "net.yaml:7: share: its ceiling of 30 % is below its guarantee of 40 %; raise the ceiling, or lower",
        ),
        (
            "guarantee: 2.5 %",
            "guarantee: 20 %",
            "net.yaml:9: slice red@s1 has a guarantee of 40 %, and guarantees come to 45 % "
            "(red/r1 25 %, red/r2 20 %); lower one",
        ),
        (
            'guarantee: 40 %, ceiling: "90%"',
            "ceiling: 20 %",
            "net.yaml:9: slice red@s1 has a ceiling of 20 %, and guarantees come to 27.5 % "
            "(red/r1 25 %, red/r2 2.5 %); lower one",
        ),
        (
            "guarantee: 50 %",
            "guarantee: 61 %",
            "net.yaml:18: plane s1 has 100 % to guarantee, and guarantees come to 101 % "
            "(blue/r1 61 %, slice red@s1 40 %); lower one",
        ),
    ],
)
def test_what_cannot_be_is_one_line(old: str, new: str, words: str) -> None:
    assert words in refusal(old, new)


def test_the_whole_may_be_guaranteed_to_the_last_part() -> None:
    assert laid(TEXT.replace("guarantee: 50 %", "guarantee: 60 %")).routers["blue/r1"].share.guarantee == 600_000


def test_a_plane_without_shares_is_named_with_a_line_and_a_remedy() -> None:
    after, where = merge(parse(TEXT, "net.yaml"), State(), Ids(), {})
    found = {problem: line_of(key, where) for key, problem in unsupported(State(), after, {"s1"})}
    words = "plane s1 has no shares, and so none for {}; leave share out, or use a plane that has them"
    whose = {"slice red@s1": 6, "router red/r1": 9, "router red/r2": 12, "router blue/r1": 18}
    assert found == {words.format(name): line for name, line in whose.items()}
    assert not list(unsupported(State(), after, {"s2"}))


def test_what_was_asked_before_is_no_fault_of_another_change() -> None:
    before = laid(TEXT)
    assert not list(unsupported(before, before, {"s1"}))
    changed = laid(TEXT.replace("weight: 2", "weight: 5"), before)
    assert [key for key, _ in unsupported(before, changed, {"s1"})] == [("router", "red/r1")]
    gone = laid(TEXT.replace("weight: 2, guarantee: 25 %", "weight: 1"), before)
    assert not list(unsupported(before, gone, {"s1"}))
