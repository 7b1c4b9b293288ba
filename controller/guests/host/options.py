"""What a command line says of guests, and the drivers of this host: for vr-host, and for a controller without it."""

import argparse
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from controller.guests import netns
from controller.guests.base import GuestDriver
from controller.guests.fleet import Check
from controller.guests.limits import Policy
from controller.guests.machine.accelerator import AcceleratorProbe
from controller.guests.machine.qemu import QemuDriver
from controller.guests.netns import NetnsDriver
from controller.model import GuestKind

DEFAULT_STATE = Path("/var/lib/splitplane")
DEFAULT_RUN = Path("/run/splitplane")
DEFAULT_IMAGE = Path("/var/lib/splitplane/image")


@dataclass(frozen=True, slots=True)
class Drivers:
    """What runs guests, and what tells before anything is stored whether one could run, by kind."""

    drivers: Mapping[GuestKind, GuestDriver]
    checks: Mapping[GuestKind, Check]


def parse_cpus(text: str) -> str:
    """Return a list of this host's processors as it is; ArgumentTypeError where it is none."""
    last = (os.cpu_count() or 1) - 1
    for part in text.split(","):
        first, dash, end = part.partition("-")
        numbers = (first, end) if dash else (first,)
        if not all(re.fullmatch("[0-9]{1,5}", one) for one in numbers) or not int(first) <= int(numbers[-1]) <= last:
            raise argparse.ArgumentTypeError(f"{text!r} is no list such as 2-7 or 1,3 of the processors 0 to {last}")
    return text


def parse_octets(text: str) -> int:
    """Return what 512M or 4G means, in octets; ArgumentTypeError where it is no such size."""
    if not re.fullmatch(r"[1-9][0-9]{0,6}[MG]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 512M or 4G")
    return int(text[:-1]) << (30 if text.endswith("G") else 20)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of directories and guests."""
    add = parser.add_argument
    add("--state", type=Path, default=DEFAULT_STATE, help="what must survive (default: %(default)s)")
    add("--run", type=Path, default=DEFAULT_RUN, help="sockets (default: %(default)s)")
    image = "directory of the image of guests in virtual machines (default: %(default)s)"
    add("--guest-image", type=Path, default=DEFAULT_IMAGE, metavar="DIRECTORY", help=image)
    strict = "whether guests run without control groups that this host lacks (default: %(default)s)"
    add("--limits", default="required", choices=("required", "best-effort"), help=strict)
    cpus = "the processors that guests run on, such as 2-7, to keep them off the forwarder's (default: all)"
    add("--guest-cpus", type=parse_cpus, metavar="LIST", help=cpus)
    disks = "octets that a guest may read of each disk in a second, and write, such as 50M (default: no limit)"
    add("--guest-disk-rate", type=parse_octets, default=0, metavar="SIZE", help=disks)
    add("--log-level", default="info", choices=("debug", "info", "warning", "error"))


def make_drivers(options: argparse.Namespace) -> Drivers:
    """Return the drivers of this host; guests see none of the controller's directories."""
    state: Path = options.state
    hidden = (state.absolute(), options.run.absolute())
    policy = Policy(options.limits == "best-effort", options.guest_cpus or "", options.guest_disk_rate)
    machines = QemuDriver(options.guest_image.absolute(), AcceleratorProbe(state), hidden, policy)
    spaces = NetnsDriver(hidden, policy=policy)
    return Drivers(
        {GuestKind.NETNS: spaces, GuestKind.KVM: machines},
        {GuestKind.NETNS: netns.check_guest, GuestKind.KVM: machines.check},
    )
