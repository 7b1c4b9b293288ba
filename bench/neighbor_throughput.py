"""How many packets a second a router forwards alone, and while another guest reads and writes memory.

    generator ── eth0 ── near [ load/r, many BGP routes ] far ── eth1 ── BIRD, receiver: both in the host "load"
      first core: generator, vr-forwarder's program, receiver            last core: who reads and writes memory

The generator sends as much as goes. Beside 1 MiB, which stays in a core's own cache, it is the core that is shared (a
virtual machine's cores may be two threads of one); what 1 GiB costs beyond is memory's. A switch that is a process
runs on whichever core it gets.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from statistics import median
from typing import Any

from bench import destinations
from bench.rig import AS_NUMBER, MORE_ROUTES, PLANE, WORK, Rig, bgp_config, interface, say, take_generated, tenant
from lab import bird, generator
from lab.bird import Bird
from lab.network import NetworkError, checked, inside, wait_for
from lab.prefixes import announcements
from lab.wires import FORWARDER_CORE, GENERATOR_CORE, Conversation

ROUTES = 100_000
ATTACKER_CORE = FORWARDER_CORE
_ROUTER = "load/r"
_NEAR, _FAR, _OUTSIDE = "10.7.0.1", "10.8.0.1", "10.8.0.2"
_SEED, _TURNS = 1, 5
_MIB = (1, 1024)
_WARM_S, _LASTS_S, _TAIL_S = 0.3, 1.0, 0.1
ATTACKED_S = _WARM_S + _LASTS_S + 1.0
"""How long an attack that it is compared with has to last."""
_LENGTH = 60  # octets of a frame without its check sequence
_LEARNED_S = 120.0


class LoadedNeighbor:
    """A router that is measured alone, with a table that does not fit into the first caches."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._host = rig.network.host("load", "10.7.0.2/24")
        for device, port in (("eth0", "load-n"), ("eth1", "load-f")):
            rig.network.wire(self._host, device, rig.network[PLANE], port)

    def tenant(self) -> dict[str, Any]:
        """Return its tenant for `Rig.apply`."""
        ends = [interface("near", "load-n", f"{_NEAR}/24"), interface("far", "load-f", f"{_FAR}/24")]
        frr = bgp_config([_OUTSIDE], bird.AS_NUMBER)
        router = {"name": "r", "interfaces": ends, "frr": frr}
        # Of what nobody asks for, its part beside twenty others' would be too small.
        return tenant("load", ["load-n", "load-f"], router, ipv4_routes=ROUTES + MORE_ROUTES)

    def learn(self) -> None:
        """Have it learn its routes, once it is up; returns when the plane has them."""
        announced = announcements(ROUTES, _SEED)
        take_generated(self._rig, "load-n")
        checked(inside(self._host, ["ip", "address", "add", f"{_OUTSIDE}/24", "dev", "eth1"]))
        feeding = Bird(self._host, [(_OUTSIDE, _FAR)], AS_NUMBER)
        feeding.start(announced)
        feeding.wait_established()
        feeding.announce()
        wait_for(f"{ROUTES} routes of {_ROUTER}", self._has_all, _LEARNED_S, 0.5)
        self._destinations = destinations.write(WORK, [announced], destinations.MOST, _SEED)

    def _has_all(self) -> bool:
        view = self._rig.api.router(_ROUTER)
        return view["ipv4_routes"] >= ROUTES and not view["pending"]

    def compare(self, attack: Callable[[int], AbstractContextManager[list[float]]]) -> dict[str, Any]:
        """Measure it in turns, alone and inside ``attack(MiB)``, whose value is how many accesses it made a second.

        Returns Mpps, what is kept of them, and those accesses, in millions a second.
        """
        macs = {(one["router"], one["name"]): one["mac"] for one in self._rig.api.get("interfaces")}
        own = self._host.MAC("eth0")
        send = ("send", "eth0", own, macs[_ROUTER, "near"], str(self._destinations))
        turns: list[list[float]] = []
        accesses: dict[int, list[float]] = {mib: [] for mib in _MIB}
        with ExitStack() as stack:
            core = ("taskset", "-c", str(GENERATOR_CORE))
            sender = stack.enter_context(generator.conversation(self._host, *send, before=core))
            receiver = stack.enter_context(generator.conversation(self._host, "receive", "eth1", before=core))
            for _ in range(_TURNS):
                turns.append([_mpps(sender, receiver)])
                for mib in _MIB:
                    with attack(mib) as accesses_per_s:
                        turns[-1].append(_mpps(sender, receiver))
                    accesses[mib] += accesses_per_s
                say(f"{_ROUTER} forwards, Mpps, alone and beside {_MIB} MiB: {turns[-1]}")
        names = ("alone", *(f"beside_{mib}_mib" for mib in _MIB))
        found: dict[str, Any] = {
            f"mpps_{name}": round(median(mpps), 3) for name, mpps in zip(names, zip(*turns, strict=True), strict=True)
        }
        for place, name in enumerate(names[1:], 1):
            found[f"kept_{name}"] = round(median(turn[place] / turn[0] for turn in turns), 3)
        for mib, per_s in accesses.items():
            found[f"accesses_{mib}_mib_m_per_s"] = round(median(per_s) / 1e6, 1)
        return {"routes": ROUTES, **found}


def _mpps(sender: Conversation, receiver: Conversation) -> float:
    """Send as much as goes for a while; returns what arrives in the middle of it. NetworkError where nothing does."""
    sender.ask(f"{_LENGTH} 0 {1000 * (_WARM_S + _LASTS_S + _TAIL_S):.0f}")
    time.sleep(_WARM_S)
    first = _count(receiver)
    time.sleep(_LASTS_S)
    last = _count(receiver)
    frames, _ = sender.answer()
    if last[0] == first[0]:
        raise NetworkError(f"{_ROUTER} forwards nothing of {frames} packets")
    return round((last[0] - first[0]) / (last[1] - first[1]) * 1e3, 3)


def _count(receiver: Conversation) -> tuple[int, int]:
    receiver.ask("")
    packets, _routed, at_ns = map(int, receiver.answer())
    return packets, at_ns
