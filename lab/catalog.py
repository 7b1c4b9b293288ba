"""The one place that knows what `--plane` and `--guest` mean."""

from collections.abc import Callable

from lab.bmv2 import Bmv2Planes
from lab.forwarder import ForwarderPlanes
from lab.open_vswitch import OpenVSwitchPlanes
from lab.planes import Planes

DEFAULT = "forwarder"
PLANES: dict[str, Callable[[], Planes]] = {
    "forwarder": ForwarderPlanes,
    "ovs": OpenVSwitchPlanes,
    "bmv2": Bmv2Planes,
}

MACHINE = "kvm"
GUESTS = ("netns", MACHINE)
GUEST_HELP = "where red's routers, or those of leaf_spine, run (default: %(default)s); for kvm: make guest"
