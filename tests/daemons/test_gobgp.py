"""BGP of GoBGP, by the suite `command`: its best paths come to the kernel by a script beside it."""

import pytest
from daemon_rig import Between, Net, both

pytestmark = pytest.mark.root

PEER = """[[neighbors]]
  [neighbors.config]
    neighbor-address = "10.{N}.0.2"
    peer-as = 6500{N}
  [neighbors.timers.config]
    connect-retry = 1
    idle-hold-time-after-reset = 1
"""
CONFIG = '[global.config]\n  as = 65009\n  router-id = "10.0.0.9"\n' + "".join(both(PEER))
WRITER = """import json, subprocess, sys
monitor = ("gobgp", "monitor", "global", "rib", "--current", "-j")
for line in subprocess.Popen(monitor, stdout=subprocess.PIPE, text=True).stdout:
    for path in json.loads(line) if line.startswith("[") else ():
        hop = next(one["nexthop"] for one in path["attrs"] if "nexthop" in one)
        what = ("del",) if path.get("withdrawal") else ("replace",)
        subprocess.run(("ip", "route", *what, path["nlri"]["prefix"], "via", hop), check=False)
sys.exit("gobgpd is not there")
"""
THEIRS = """router bgp 6500{N}
 no bgp ebgp-requires-policy
 neighbor 10.{N}.0.1 remote-as 65009
 neighbor 10.{N}.0.1 timers connect 1
 address-family ipv4 unicast
  network 192.0.2.{N}/32
"""
COMMAND = {
    "files": {"gobgpd.toml": CONFIG, "write.py": WRITER},
    "daemons": [
        {
            "argv": ["/usr/bin/gobgpd", "-f", "/run/command/etc/gobgpd.toml", "--api-hosts", "127.0.0.1:50051"],
            "reload": "HUP",
        },
        {"name": "writer", "argv": ["/usr/bin/python3", "/run/command/etc/write.py"]},
    ],
}
NETS = {"gobgp": Net("", *both(THEIRS), router={"command": COMMAND})}


def test_neighbors_are_joined_through_the_plane(nets: dict[str, Between]) -> None:
    net = nets["gobgp"]
    net.forwards(4)
    said = net.rig.ok("exec", net.name, "--", "gobgp", "neighbor")
    assert said.count("Establ") == 2, said
    assert {"gobgpd", "writer"} <= net.rig.api.get("routers", *net.name.split("/"), "daemons").keys()
