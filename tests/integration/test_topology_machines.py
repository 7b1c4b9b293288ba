"""two_tenants with red's routers in virtual machines and blue's in namespaces holds all that it claims.

So protocols of two machines converge through punted packets, and the plane alone forwards between them. What becomes
of a router whose QEMU is killed is in test_kvm_guest.
"""

import pytest
from programs import ROOT, all_hold, finish

pytestmark = pytest.mark.root


async def test_everything_claimed_holds_with_a_tenant_in_machines() -> None:
    all_hold(*await finish(str(ROOT / "topologies/run"), "two_tenants", "--guest", "kvm", "--test", limit_s=420))
