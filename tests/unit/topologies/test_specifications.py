"""The YAML of each topology is valid, and its routers do not claim what the network does not have."""

from pathlib import Path

import pytest

from controller.guests.suites.frr import daemons_for, refuse_foreign
from controller.model import PlaneConfig, PlaneKind
from controller.spec.check import check
from controller.spec.merge import merge
from controller.spec.parse import parse
from controller.spec.state import Ids, State
from topologies.running import NAMES

TOPOLOGIES = Path(__file__).parents[3] / "topologies"


def load(name: str) -> State:
    path = TOPOLOGIES / name / f"{name}.yaml"
    parsed = parse(path.read_text(), str(path))
    files = {file: (path.parent / file).read_text() for _, file, _ in parsed.text_files()}
    names = {router.plane for tenant, _ in parsed.tenants() for router in tenant.routers}
    planes = {name: PlaneConfig(name, PlaneKind.FAKE) for name in names}
    state, where = merge(parsed, State(planes), Ids(), files)
    check(state, where)
    return state


@pytest.mark.parametrize("name", NAMES)
def test_the_specification_is_valid(name):
    for router in load(name).routers.values():
        refuse_foreign(router.full_name, router.routing.text)
        assert {"zebra", "ospfd", "bgpd"} & set(daemons_for(router.routing.text)) > {"zebra"}


def test_both_tenants_have_the_same_addresses():
    routers = load("two_tenants").routers
    for name in ("r1", "r2"):
        red, blue = (
            sorted(address for interface in routers[f"{tenant}/{name}"].interfaces for address in interface.addresses)
            for tenant in ("red", "blue")
        )
        assert red == blue
        assert len(red) == 2 * len(routers[f"red/{name}"].interfaces)


def test_every_fabric_link_of_leaf_spine_is_unnumbered():
    routers = load("leaf_spine").routers.values()
    names = {router.name for router in routers}
    fabric = [interface for router in routers for interface in router.interfaces if interface.name in names]
    assert len(fabric) == 8
    assert not any(interface.addresses for interface in fabric)
