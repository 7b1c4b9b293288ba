"""How claims are proved that hold for every topology: sessions, reach, spread, reroute, restart, who forwarded."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from lab.network import Link, inside, output
from lab.probes import RunningPing, ping, received, spread, traceroute
from lab.readings import Stream, answered, forwarded_datagrams
from lab.topology import Lab, Progress
from topologies.checks import expect

FLOWS = 128
CUT_S = 4.0


def sessions_up(lab: Lab, progress: Progress) -> list[str]:
    """Every router and external neighbor has all its neighbors."""
    totals: dict[str, int] = {}
    for name, expected in lab.topology.sessions.items():
        progress(f"{', '.join(expected)} of {name}")
        have = lab.sessions_of(name)
        for protocol, wanted in expected.items():
            found = have.get(protocol, 0)
            expect(found == wanted, f"{name} has {found} {protocol} neighbors, not {wanted}")
            totals[protocol] = totals.get(protocol, 0) + wanted
    states = {"BGP": "Established", "OSPFv2": "Full", "OSPFv3": "Full"}
    return [f"{count} {protocol} ends {states[protocol]}" for protocol, count in totals.items()]


def reach(lab: Lab, ends: Sequence[tuple[str, str]]) -> list[str]:
    """Each host reaches its address, without a loss."""
    found = []
    for host, address in ends:
        answers = ping(lab.network[host], address, 5)
        expect(answers == 5, f"{host} → {address}: {answers} of 5 pings answered")
        found.append(f"{host} → {address} 5/5")
    return found


def trace(lab: Lab, host: str, address: str, expected: Sequence[set[str]]) -> list[str]:
    """A traceroute shows these hops: each router counts its own TTL, and its guest's kernel answers for it."""
    hops = traceroute(lab.network[host], address)
    shown = " → ".join(hops)
    expect(len(hops) == len(expected), f"{host} → {address} took {len(hops)} hops, not {len(expected)}: {shown}")
    for hop, wanted in zip(hops, expected, strict=True):
        expect(set(hop.split("|")) <= wanted, f"hop {hop} of {host} → {address} is none of {sorted(wanted)}: {shown}")
    return [f"{host} → {address}: {shown}"]


def equal_cost(lab: Lab, router: str, prefixes: Sequence[str], members: int) -> list[str]:
    """The FIB of a router has that many nexthops for each prefix."""
    entries = {entry["prefix"]: entry for entry in lab.controller.fib(router)}
    found = []
    for prefix in prefixes:
        expect(prefix in entries, f"{prefix} is not in the FIB of {router}")
        nexthops = entries[prefix]["nexthops"]
        expect(len(nexthops) == members, f"{prefix} in {router} has {len(nexthops)} nexthops, not {members}")
        found.append(f"{prefix}: " + " | ".join(nexthops))
    return found


def spreads(lab: Lab, sender: str, address: str, receiver: str, interfaces: Sequence[str]) -> list[str]:
    """Flows to an address use every one of the receiver's interfaces."""
    counts = spread(lab.network[sender], address, lab.network[receiver], interfaces, FLOWS)
    shown = ", ".join(f"{name} {count}" for name, count in counts.items())
    expect(all(count > FLOWS // 8 for count in counts.values()), f"{FLOWS} TCP flows to {address}: {shown} packets")
    return [f"{FLOWS} TCP flows to {address}: {shown} packets"]


def reroutes(
    lab: Lab,
    progress: Progress,
    end: tuple[str, str],
    receiver: str,
    links: Mapping[str, Link],
    limit_ms: float,
) -> list[str]:
    """Cut the one of several links to a receiver that a running ping uses: it is back within a limit."""
    sender, address = end
    stream = RunningPing(lab.network[sender], address, 0.01)
    busy = _busiest(lab, receiver, tuple(links))
    progress(f"cutting {busy} of {receiver} under a ping every 10 ms")
    with _cut(lab, links[busy]):
        time.sleep(CUT_S)
        seen = stream.stop()
        answers = ping(lab.network[sender], address)
    reached = f"pings were answered for {seen.lasted_s:.1f} s, and {answers} of 3 then"
    expect(
        seen.lasted_s > CUT_S and answers == 3,
        f"after {busy} of {receiver} was cut, {address} is not reached: {reached}",
    )
    loss = f"back in {seen.outage_ms:.0f} ms, {seen.lost} lost" if seen.lost else "no packet lost"
    shown = f"{receiver} {busy} cut: traffic to {address}: {loss}"
    expect(seen.outage_ms < limit_ms, f"{shown}; allowed are {limit_ms:.0f} ms")
    lab.converge(progress)
    return [shown]


def _busiest(lab: Lab, receiver: str, interfaces: Sequence[str]) -> str:
    """Return the interface that gets most of the packets of the next second."""
    node = lab.network[receiver]
    before = {name: received(node, name) for name in interfaces}
    time.sleep(1)
    return max(interfaces, key=lambda name: received(node, name) - before[name])


@contextmanager
def _cut(lab: Lab, link: Link) -> Iterator[None]:
    lab.network.put(link, "down")
    try:
        yield
    finally:
        lab.network.put(link, "up")


def survives_restart(lab: Lab, progress: Progress, ends: Sequence[tuple[str, str]]) -> list[str]:
    """Kill the controller with SIGKILL and start it again under running pings: none is lost, no session breaks."""
    streams = {end: RunningPing(lab.network[end[0]], end[1]) for end in ends}
    start = time.monotonic()
    try:
        time.sleep(1)
        progress("kill -9 of vr-controller")
        lab.controller.kill()
        progress("starting vr-controller again")
        lab.controller.start()
        settle(lab, progress)
        time.sleep(1)
    finally:
        seen = {end: stream.stop() for end, stream in streams.items()}
    took = time.monotonic() - start - 2
    found = [unbroken(lab, end, stream, took) for end, stream in seen.items()]
    sessions_up(lab, progress)
    return [f"routers up again {took:.1f} s after the kill, every session kept", *found]


def unbroken(lab: Lab, end: tuple[str, str], stream: Stream, took_s: float) -> str:
    """A ping for such a time has lost nothing, and is answered still; a busy machine may start it late."""
    host, address = end
    answers = ping(lab.network[host], address)
    shown = f"{host} → {address}: {stream.lost} of {stream.sent} pings lost"
    expect(
        stream.lost == 0 and stream.lasted_s > took_s / 2 and answers == 3,
        f"{shown} in {stream.lasted_s:.1f} s, {answers} of 3 answered then",
    )
    return shown


def settle(lab: Lab, progress: Progress, timeout_s: float = 60) -> None:
    """Wait until every router is up and all its routes are confirmed."""
    progress("waiting for every router to be up")
    lab.wait_settled(timeout_s)


def forwarded(lab: Lab, router: str) -> int:
    """Return how many packets the kernel of a router's guest forwarded, IPv4 and IPv6."""
    text = lab.controller.exec(router, "cat", "/proc/net/snmp", "/proc/net/snmp6")
    return forwarded_datagrams(text)


def switch_forwards(lab: Lab, progress: Progress, ends: Sequence[tuple[str, str]], count: int = 200) -> list[str]:
    """Under traffic the guests' kernels forward nothing, and never forwarded more than was punted to them."""
    routers = lab.topology.routers
    before = {router: (forwarded(lab, router), lab.controller.counters(router)["punts"]) for router in routers}
    for host, address in ends:
        progress(f"{count} pings {host} → {address}")
        text = output(inside(lab.network[host], ["ping", "-n", "-D", "-c", str(count), "-i", "0.005", address]))
        stream = Stream.read(text, 0.005)
        # ping does not wait long for what answers the last ones.
        whole = stream.sent > count * 0.9 and not stream.lost
        expect(whole, f"{host} → {address}: {answered(text)} of {count} pings were answered")
    found = []
    for router, (earlier, punts) in before.items():
        after = forwarded(lab, router)
        counters = lab.controller.counters(router)
        punted = sum(counters["punts"].values())
        moved = sum(interface["tx_packets"] for interface in counters["interfaces"].values())
        growth = after - earlier
        shown = f"{router}: switch sent {moved}, guest forwarded {after} (+{growth}) of {punted} punted to it"
        if growth:
            more = {reason: number - punts.get(reason, 0) for reason, number in counters["punts"].items()}
            shown += f" ({', '.join(f'{reason} +{number}' for reason, number in more.items() if number)})"
        expect(growth == 0, f"{shown}; the guest's share grew")
        expect(after <= punted, f"{shown}; more than was punted")
        found.append(shown)
    return found


def verified(lab: Lab) -> list[str]:
    """`vrctl verify` finds learned, desired and installed equal for every router."""
    found = []
    for view in lab.controller.show("verify"):
        seen = f"{view['total_differences']} differences, first: {view['differences'][:1]}; {view['damaged'][:3]}"
        expect(view["equal"], f"{view['router']}: {seen}")
        found.append(f"{view['router']} {view['routes']} prefixes equal")
    return found
