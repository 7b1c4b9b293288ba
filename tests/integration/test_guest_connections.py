"""Who is root of a guest in namespaces and opens connections to its session socket on and on has few of them."""

import pytest
from e2e_world import OWN_ROUTES, world
from rig import AS_VRC, DEADLINE_S, until

from controller.sessions.sockets import CONNECTIONS

pytestmark = pytest.mark.root

TRIED = 30
# Says how many of its connections are still open once all of them were looked at: one in 50 ms, in the order in which
# they came, so it waits for one too many to be closed, and then until none was for a while.
GREEDY = f"""
import select, socket, sys
mine = []
for number in range({TRIED}):
    one = socket.socket(socket.AF_UNIX)
    one.connect("/run/splitplane/session/session.sock")
    mine.append(one)
while True:
    closed, _, _ = select.select(mine, [], [], 2 if len(mine) < {CONNECTIONS} else {DEADLINE_S / 2})
    if not closed:
        break
    mine = [one for one in mine if one not in closed or one.recv(1)]
print(len(mine), flush=True)
"""


def test_root_of_a_guest_has_few_connections_and_its_router_goes_on() -> None:
    with world() as running:
        rig = running.rig
        before = rig.router("red/r1")
        left = int(rig.ok("exec", "red/r1", "--", *AS_VRC, "python3", "-c", GREEDY, text=""))
        assert left == CONNECTIONS - 2  # its VRC has the others
        assert rig.show("counters", "red/r1")["relayed"]["connections_refused"] == TRIED - left
        assert f"session-refused red/r1: more than {CONNECTIONS} connections" in rig.ok("events")
        assert rig.router("red/r1")["state"] == before["state"] == "up"
        assert "vrc-lost" not in rig.ok("events")
        rig.ok("exec", "red/r1", "--", "pkill", "-f", "vrc.agent", text="")
        until("the VRC is back", lambda: rig.ok("events").count("vrc-connected red/r1") == 2)
        rig.up("red/r1", "blue/r1")
        rig.up("red/r1", routes=OWN_ROUTES + 1)
