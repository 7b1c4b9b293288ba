"""The operator is told once of each link by which routes lead, and which no plane has, and of a kernel that does not
forward."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from netlink_bytes import by_gateway, route
from route_tables import changes, delete

from vrc import agent as module
from vrc.agent import Agent, Options
from vrc.interfaces import IFF_UP, Link

MAC = bytes(6)


@pytest.fixture
async def agent() -> AsyncIterator[Agent]:
    one = Agent(Options("red/r1", "unix:/none", "/none", "netlink", ("127.0.0.1", 0)))
    one.interfaces.links = {
        at: Link(at, name, IFF_UP, 1500, MAC) for at, name in enumerate(("lo", "eth0", "gre1"), 1)
    }
    one.interfaces.declared = {"eth0": 101}
    one._ready.set()
    yield one
    one.kernel.close()
    one.source.close()
    one.netlink.close()


def told(agent: Agent) -> list[str]:
    """What a look at the routes tells of."""
    agent._report_elsewhere()
    notices = [f"{kind}: {text.split(',')[0]}" for kind, text in agent.known.notices]
    agent.known.notices.clear()
    return notices


async def test_a_link_is_told_of_once_while_routes_lead_to_it(agent: Agent) -> None:
    by_tunnel = route("10.60.0.0/16", by_gateway("10.98.0.2", 3))
    others = route("10.1.0.0/16", by_gateway("10.0.0.2", 2)), route("10.2.0.0/16", by_gateway("10.0.0.2", 1))
    scope = agent.table.open_scope()
    agent.table.apply(changes(by_tunnel, *others), scope)
    looks = [told(agent) for _ in range(3)]
    assert looks == [[], ["not-forwarded: routes lead to gre1"], []]
    agent.table.apply(changes(delete("10.60.0.0/16", by_gateway("10.98.0.2", 3))), scope)
    assert told(agent) == []
    agent.table.apply(changes(by_tunnel), scope)
    assert [told(agent) for _ in range(2)] == [[], ["not-forwarded: routes lead to gre1"]]


async def test_a_link_that_becomes_an_interface_at_once_is_not_told_of(agent: Agent) -> None:
    agent.table.apply(changes(route("10.60.0.0/16", by_gateway("10.98.0.2", 3))), agent.table.open_scope())
    assert told(agent) == []
    agent.interfaces.declared["gre1"] = 102
    assert [told(agent) for _ in range(2)] == [[], []]


async def test_a_kernel_that_does_not_forward_is_told_of_once_until_it_does(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"IPv4": tmp_path / "4", "IPv6": tmp_path / "6"}  # of the latter there is none yet
    monkeypatch.setattr(module, "_FORWARDING", {family: str(path) for family, path in settings.items()})
    found = []
    for family, value in (("IPv4", 1), ("IPv4", 0), ("IPv4", 0), ("IPv6", 0), ("IPv4", 1), ("IPv6", 1), ("IPv6", 0)):
        settings[family].write_text(f"{value}\n")
        agent._report_forwarding()
        found.append([text.split(",")[0] for _, text in agent.known.notices])
        agent.known.notices.clear()
    says = "the guest's kernel does not forward"
    assert found == [[], [f"{says} IPv4"], [], [f"{says} IPv4 and IPv6"], [f"{says} IPv6"], [], [f"{says} IPv6"]]
