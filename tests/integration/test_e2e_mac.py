"""A router's interface gets another MAC while it runs: daemons that copied the former one have the new one, too."""

import pytest
from e2e_single import FAR, ROUTER, single
from rig import until

pytestmark = pytest.mark.root

MAC, SNPA = "02:00:5e:10:00:07", "SNPA: 0200.5e10.0007"
TEXT = """ip route 192.0.2.0/24 10.2.0.2
router isis X
 net 49.0001.0000.0000.0009.00
interface left
 ip router isis X
 isis hello-interval 1
"""


async def test_another_mac_is_everywhere_and_nothing_is_refused_meanwhile() -> None:
    with single(TEXT) as one:
        rig = one.rig
        assert await one.left.ping(FAR, 3) == 3

        def circuit() -> str:
            return one.guest("vtysh", "-c", "show isis interface detail")

        until("IS-IS speaks", lambda: "SNPA: " in circuit())
        assert SNPA not in circuit()
        (red,) = one.declared["routers"]
        first, *more = red["interfaces"]
        rig.apply(one.declared | {"routers": [red | {"interfaces": [first | {"mac": MAC}, *more]}]})
        until("IS-IS has it", lambda: SNPA in circuit())
        rig.up(ROUTER)
        one.left.ip("neigh", "flush", "all")
        assert await one.left.ping(FAR, 3) == 3
        assert MAC in one.left.ip("neigh", "show", "10.1.0.1")
        refused = [event for event in rig.show("events") if event["kind"] == "packet-out-refused"]
        assert refused == []
        rig.verified()
