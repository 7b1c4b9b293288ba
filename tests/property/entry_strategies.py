"""Small tables' entries for hypothesis, as the contract has them; what a plane bounds, its tests say."""

from hypothesis import strategies as st

from controller.planes.base import MAX_OBJECT_ID, GroupMember, Nexthop, NexthopGroup, NexthopState, Policer, PuntClass

macs = st.binary(min_size=6, max_size=6)
objects = st.integers(0, MAX_OBJECT_ID)
_rates = st.integers(0, 1_000_000)


def nexthops(ids: st.SearchStrategy[int]) -> st.SearchStrategy[Nexthop]:
    """With router interfaces of these ids."""
    states = st.sampled_from([NexthopState.GLEAN, NexthopState.DROP])
    return st.builds(Nexthop, objects, ids, macs) | st.builds(Nexthop, objects, ids, st.just(bytes(6)), states)


def groups(ports: st.SearchStrategy[int]) -> st.SearchStrategy[NexthopGroup]:
    """With members that are watched by these ports."""
    members = st.builds(GroupMember, objects, st.integers(1, 256), ports)
    return st.builds(NexthopGroup, objects, st.lists(members, min_size=1, max_size=8).map(tuple))


def policers(ids: st.SearchStrategy[int]) -> st.SearchStrategy[Policer]:
    """Of routers of these ids."""
    return st.builds(Policer, ids, st.tuples(*[_rates] * len(PuntClass)))
