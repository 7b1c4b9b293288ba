"""The YAML examples of the manual: each is a document that apply takes as a whole."""

import re
from ipaddress import ip_interface
from pathlib import Path

import pytest

from controller.guests.suites.choice import SUITES
from controller.guests.suites.frr import daemons_for
from controller.model import Suite
from controller.spec.check import check
from controller.spec.merge import merge
from controller.spec.parse import parse
from controller.spec.state import Ids, State

ROOT = Path(__file__).parents[3]
FENCE = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    pytest.param(name, text, id=f"{name}-{number}")
    for name in ("README.md", "docs/documents.md")
    for number, text in enumerate(FENCE.findall((ROOT / name).read_text()))
]


def state_of(text: str, source: str) -> State:
    state, where = merge(parse(text, source), State(), Ids(identity=0xAB), {})
    check(state, where)
    return state


@pytest.mark.parametrize(("source", "text"), EXAMPLES)
def test_a_documented_example_is_a_whole_document(source: str, text: str) -> None:
    state = state_of(text, source)
    assert state.routers
    assert all(router.interfaces for router in state.routers.values())
    for name, router in state.routers.items():
        SUITES[router.routing.suite].refuse_foreign(name, router.routing.text)


def test_the_manual_has_all_of_its_examples() -> None:
    states = (state_of(example.values[1], "documents.md") for example in EXAMPLES[-5:])
    minimal, two, fallback, device, suites = states
    assert fallback.planes["s1"].fallback is not None
    assert [router.routing.suite for router in suites.routers.values()] == [Suite.BIRD, Suite.IP]
    assert list(minimal.routers) == ["red/r1"]
    assert set(two.routers) == {"red/edge", "red/core", "blue/edge"}
    assert len(two.links) == len(device.links) == 1
    assert [port.device for port in device.planes["b1"].ports] == ["", "b1-eth2", "", ""]
    edges = (two.routers["red/edge"], two.routers["blue/edge"])
    networks = [{ip_interface(a).network for i in one.interfaces for a in i.addresses} for one in edges]
    assert networks[0] & networks[1], "the tenants are to show the same addresses"
    assert {"bgpd", "vrrpd"} <= set(daemons_for(two.routers["red/core"].routing.text))
