"""The one place that knows what `--plane` and `--guest` mean."""

from collections.abc import Callable

from lab.planes.base import Planes
from lab.planes.bmv2 import Bmv2Planes
from lab.planes.forwarder import ForwarderPlanes
from lab.planes.open_vswitch import OpenVSwitchPlanes

DEFAULT = "forwarder"
PLANES: dict[str, Callable[[], Planes]] = {
    "forwarder": ForwarderPlanes,
    "ovs": OpenVSwitchPlanes,
    "bmv2": Bmv2Planes,
}

MACHINE = "kvm"
GUESTS = ("netns", MACHINE)
GUEST_HELP = "where red's routers, or those of leaf_spine, run (default: %(default)s); for kvm: make guest"
