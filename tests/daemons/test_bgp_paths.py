"""BGP of FRR with BIRD, by additional paths (RFC 7911): one route by sixteen next hops."""

import pytest
from daemon_rig import Between, Net
from rig import until
from test_bgp import OURS, TEXTS

pytestmark = pytest.mark.root

HOPS = {f"path{last}": f"10.2.0.{last}" for last in range(11, 27)}
PREFIX, ADDRESS = "198.51.100.0/24", "198.51.100.1"
STATIC = "".join(f"protocol static {name} {{ ipv4; route {PREFIX} blackhole; }}\n" for name in HOPS)
EXPORT = "".join(f'if proto = "{name}" then bgp_next_hop = {hop}; ' for name, hop in HOPS.items())
BIRD = f"""router id 10.0.0.2;
protocol device {{}}
protocol kernel {{ ipv4 {{ export where source = RTS_BGP; }}; }}
{STATIC}protocol bgp {{
  local 10.2.0.2 as 65002;
  neighbor 10.2.0.1 as 65009;
  connect delay time 1;
  ipv4 {{ add paths tx; import all; export filter {{ {EXPORT}accept; }}; }};
}}
"""
NETS = {"paths": Net(OURS.replace("  neighbor V4", "  maximum-paths 16\n  neighbor V4", 1), TEXTS[1], BIRD)}


def test_a_route_by_sixteen_paths(nets: dict[str, Between]) -> None:
    net = nets["paths"]
    for hop in HOPS.values():
        net.n2.run("ip", "address", "add", f"{hop}/24", "dev", "eth0")
    net.n2.run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
    until("16 next hops", lambda: len(net.route(PREFIX).get("nexthops", ())) == len(HOPS))
    net.forwards_to(ADDRESS)
