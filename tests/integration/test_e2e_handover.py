"""A port or VLAN goes from one tenant to another under traffic: no packet of the old one reaches the new one."""

from collections.abc import Iterator

import pytest
from e2e_streams import Received, send
from rig import Rig, tenant, until

from lab.namespaces import Host

pytestmark = pytest.mark.root

GATEWAY_MAC = "02:00:00:00:0a:01"
"""The same in both tenants, as are all addresses: nothing but the port tells them apart."""


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig() as found:
        yield found


def attached(name: str, left: Host, right: tuple[str, int] | None) -> dict[str, object]:
    """A tenant whose router has the left host and, where given, the port and VLAN of the right one."""
    interfaces: list[dict[str, object]] = [{"name": "left", "port": left.link, "addresses": ["10.1.0.1/24"]}]
    ports: dict[str, list[object]] = {left.link: ["untagged"]}
    if right is not None:
        port, vlan = right
        ports[port] = [vlan or "untagged"]
        one = {"name": "right", "port": port, "addresses": ["10.2.0.1/24"], "mac": GATEWAY_MAC}
        interfaces.append(one | ({"vlan": vlan} if vlan else {}))
    return tenant(name, ports, {"name": "r1", "interfaces": interfaces})


@pytest.mark.parametrize("vlan", [0, 100])
def test_nothing_of_the_old_tenant_reaches_the_new_one(rig: Rig, vlan: int) -> None:
    red, blue, right = (
        rig.host(10 + vlan, "10.1.0.2/24", "10.1.0.1"),
        rig.host(11 + vlan, "10.1.0.2/24", "10.1.0.1"),
        rig.host(12 + vlan, "10.2.0.2/24", "10.2.0.1", vlan=vlan),
    )
    shared = (f"trunk{right.port}" if vlan else right.link, vlan)
    rig.apply(attached("red", red, shared), attached("blue", blue, None))
    rig.up("red/r1", "blue/r1")
    arrived = {name: Received(rig, host) for name, host in (("red", red), ("blue", blue), ("right", right))}
    senders = [
        send(rig, red, "red", "10.2.0.2"),
        send(rig, blue, "blue", "10.2.0.2"),
        send(rig, right, "right", "10.1.0.2"),
    ]
    until("traffic of red", lambda: arrived["right"].count("red") > 100 and arrived["red"].count("right") > 100)
    rig.apply(attached("red", red, None), attached("blue", blue, shared))
    until("traffic of blue", lambda: arrived["right"].count("blue") > 100 and arrived["blue"].count("right") > 100)
    rig.apply(attached("red", red, shared), attached("blue", blue, None))
    before = arrived["right"].count("red")
    until("traffic of red again", lambda: arrived["right"].count("red") > before + 100)
    until("traffic to red again", lambda: arrived["red"].numbers("right")[-1] > arrived["blue"].numbers("right")[-1])
    for sender in senders:
        sender.kill()
    assert arrived["right"].turns() == ["red", "blue", "red"]
    at_blue, at_red = arrived["blue"].numbers("right"), arrived["red"].numbers("right")
    assert not any(at_blue[0] <= number <= at_blue[-1] for number in at_red)
    assert arrived["red"].turns() == arrived["blue"].turns() == ["right"]
    # Traffic needs the neighbor alone. That the interface's network is there again, zebra may tell later.
    rig.becomes_equal()
