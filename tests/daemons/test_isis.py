"""IS-IS (ISO/IEC 10589) of FRR: level 1, 2 and 1-2, LANs and point to point, small and large MTU; on each plane.

Where nothing else is said the virtual router's addresses stand in FRR's text alone.
"""

import pytest
from daemon_rig import PLANES, Between, Net, addresses, both

pytestmark = [pytest.mark.root, pytest.mark.parametrize("nets", PLANES, indirect=True)]

QUICK = " isis hello-interval 1\n isis hello-multiplier 8\n"
LEVEL = "level-2-only"
RUNS = " ip router isis X\n ipv6 router isis X\n"
HEAD = f"""router isis X
 net 49.0001.0000.0000.000{{N}}.00
 is-type {LEVEL}
 lsp-gen-interval 1
 spf-interval 1
"""
THEIRS = f"{HEAD}interface lo\n{RUNS} isis passive\ninterface eth0\n{RUNS}{QUICK}"
OURS = HEAD.replace("{N}", "9") + "".join(
    f"interface eth{at}\n ip address {v4}\n ipv6 address {v6}\n{RUNS}{QUICK}"
    for at, (v4, v6) in enumerate(map(addresses, (1, 2)))
)
TEXTS = (OURS, *both(THEIRS))


def changed(old: str, new: str) -> list[str]:
    return [text.replace(old, new) for text in TEXTS]


def in_yaml() -> Net:
    lines = [line for line in OURS.splitlines() if " address " not in line]
    return Net("\n".join(lines), *TEXTS[1:])


NETS = {
    "level-1": Net(*changed(LEVEL, "level-1"), in_text=True),
    "level-2": Net(*TEXTS, in_text=True),
    "levels-1-2": Net(*changed(LEVEL, "level-1-2"), in_text=True),
    "point-to-point": Net(*changed(QUICK, " isis network point-to-point\n" + QUICK), in_text=True),
    "mtu-9000": Net(*TEXTS, in_text=True, mtu=9000),
    "yaml": in_yaml(),
}


def adjacent(net: Between, name: str) -> None:
    """Wait until both neighbors are up, at each level that they share."""
    net.sees("isis neighbor", " Up ", times=4 if name == "levels-1-2" else 2)


@pytest.mark.parametrize("name", NETS)
def test_neighbors_are_joined_through_the_plane(nets: dict[str, Between], name: str) -> None:
    adjacent(nets[name], name)
    nets[name].forwards(4, 6)
