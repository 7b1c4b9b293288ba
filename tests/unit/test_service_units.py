"""The units that the manual has an operator install: what systemd is to see to, and how much of root they keep."""

import json
import os
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from controller.guests.host.daemon import OWN, SOCKET
from controller.guests.host.options import DEFAULT_IMAGE, DEFAULT_STATE

DOCS = Path(__file__).parents[2] / "docs"
HOST, CONTROLLER, FORWARDER = "vr-host", "vr-controller", "vr-forwarder"
UNITS = (HOST, CONTROLLER, FORWARDER)

MOST = {HOST: 6.5, CONTROLLER: 2.1, FORWARDER: 2.5}
"""The exposure of each, of 10, by systemd-analyze(1)."""

HOSTS_OWN = "its ports are interfaces of the host, and it is spoken with over sockets"
GUESTS = "guests are started by it and inherit that"
OTHERS_FILES = "session sockets are guests', that of vr-forwarder is root's, planes' files are renewed in place"
KEPT = {
    FORWARDER: {
        "CapabilityBoundingSet=~CAP_BPF": "XDP programs and their maps",
        "CapabilityBoundingSet=~CAP_NET_(BIND_SERVICE|BROADCAST|RAW)": "packet-outs are sent by packet sockets",
        "CapabilityBoundingSet=~CAP_NET_ADMIN": "XDP is attached to interfaces, whose offloads are switched off",
        "DeviceAllow=": "ProtectClock= alone allows to read the hardware clock",
        "IPAddressDeny=": "controllers of other hosts connect, as `listen` says",
        "PrivateNetwork=": HOSTS_OWN,
        "PrivateUsers=": "capabilities in a user namespace of its own are none for the host's interfaces",
        "ProcSubset=": "the first process of each boot is told by /proc/sys/kernel/random/boot_id",
        "ProtectKernelTunables=": "it would have /sys/fs/bpf read-only too, whatever ReadWritePaths= says",
        "RestrictAddressFamilies=~AF_(INET|INET6)": HOSTS_OWN,
        "RestrictAddressFamilies=~AF_NETLINK": "interfaces and their state",
        "RestrictAddressFamilies=~AF_PACKET": "packet-outs",
        "RestrictAddressFamilies=~AF_UNIX": HOSTS_OWN,
        "RootDirectory=/RootImage=": "it is linked with the host's libraries",
        "SystemCallFilter=~@privileged": "@system-service has chown",
        "SystemCallFilter=~@resources": "@system-service has setpriority",
        "User=/DynamicUser=": "what is pinned in /sys/fs/bpf is root's, and so is its socket",
    },
    HOST: {
        **dict.fromkeys(
            (
                "CapabilityBoundingSet=~CAP_(CHOWN|FSETID|SETFCAP)",
                "CapabilityBoundingSet=~CAP_(DAC_*|FOWNER|IPC_OWNER)",
                "CapabilityBoundingSet=~CAP_KILL",
                "CapabilityBoundingSet=~CAP_MKNOD",
                "CapabilityBoundingSet=~CAP_NET_ADMIN",
                "CapabilityBoundingSet=~CAP_SET(UID|GID|PCAP)",
                "CapabilityBoundingSet=~CAP_SYS_ADMIN",
                "CapabilityBoundingSet=~CAP_SYS_PTRACE",
                "DeviceAllow=",
                "IPAddressDeny=",
                "MemoryDenyWriteExecute=",
                "PrivateDevices=",
                "PrivateMounts=",
                "PrivateNetwork=",
                "PrivateTmp=",
                "PrivateUsers=",
                "ProcSubset=",
                "ProtectClock=",
                "ProtectControlGroups=",
                "ProtectHome=",
                "ProtectHostname=",
                "ProtectKernelLogs=",
                "ProtectKernelModules=",
                "ProtectKernelTunables=",
                "ProtectProc=",
                "ProtectSystem=",
                "RestrictAddressFamilies=~AF_(INET|INET6)",
                "RestrictAddressFamilies=~AF_NETLINK",
                "RestrictAddressFamilies=~AF_PACKET",
                "RestrictAddressFamilies=~AF_UNIX",
                "RestrictNamespaces=~cgroup",
                "RestrictNamespaces=~ipc",
                "RestrictNamespaces=~mnt",
                "RestrictNamespaces=~net",
                "RestrictNamespaces=~pid",
                "RestrictNamespaces=~user",
                "RestrictNamespaces=~uts",
                "RootDirectory=/RootImage=",
                "SystemCallFilter=~@mount",
                "SystemCallFilter=~@privileged",
                "SystemCallFilter=~@resources",
                "UMask=",
                "User=/DynamicUser=",
            ),
            GUESTS,
        ),
    },
    CONTROLLER: {
        "AmbientCapabilities=": OTHERS_FILES,
        "CapabilityBoundingSet=~CAP_(CHOWN|FSETID|SETFCAP)": OTHERS_FILES,
        "CapabilityBoundingSet=~CAP_(DAC_*|FOWNER|IPC_OWNER)": OTHERS_FILES,
        "DeviceAllow=": "ProtectClock= alone allows to read the hardware clock",
        "IPAddressDeny=": "switches of other hosts connect, as --openflow says",
        "PrivateNetwork=": "switches connect over TCP",
        "PrivateUsers=": OTHERS_FILES,
        "ProcSubset=": "/proc/meminfo bounds --memory, boot_id tells boots apart",
        "ProtectProc=": "a guest runs where its process is seen in /proc",
        "RestrictAddressFamilies=~AF_(INET|INET6)": "switches connect over TCP",
        "RestrictAddressFamilies=~AF_NETLINK": "who is at the other end of a TCP connection, and ports of devices",
        "RestrictAddressFamilies=~AF_UNIX": "its API and guests' sessions",
        "RootDirectory=/RootImage=": "it reads files of planes and of the system where they are",
        "SystemCallFilter=~@privileged": "@system-service has chown, which it needs",
        "SystemCallFilter=~@resources": "it asks for short turns (sched_setattr)",
        "UMask=": "guests' users pass through /run/splitplane; what is secret says so itself",
    },
}
"""What each unit leaves out of what systemd-analyze counts, and why."""


def settings(unit: str) -> dict[str, list[str]]:
    """Return what a unit's file says, by name (systemd.syntax(7))."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for line in (DOCS / f"{unit}.service").read_text().replace("\\\n", " ").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[name].append(" ".join(value.split()))
    return dict(found)


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_starts_again_what_ends_or_hangs_and_bounds_its_memory(unit: str) -> None:
    said = settings(unit)
    assert said["Type"] == ["notify"]  # else nobody would hear of the watchdog
    assert said["Restart"] == ["always"]
    assert said["WatchdogSec"] == ["30"]
    assert said["MemoryMax"][0].endswith("%")


def test_guests_outlive_what_makes_them() -> None:
    said = settings(HOST)
    assert said["KillMode"] == ["process"]
    assert said["OOMPolicy"] == ["continue"]
    assert not {"ProtectSystem", "PrivateTmp", "UMask"} & said.keys()
    assert settings(CONTROLLER)["RuntimeDirectoryPreserve"] == ["yes"]  # guests have their session's socket there


def test_the_controller_makes_no_guest_and_writes_none_of_their_files() -> None:
    said = settings(CONTROLLER)
    assert said["User"] == ["splitplane"]
    assert said["ExecStart"][0].endswith(f"--vr-host {OWN / SOCKET}")
    assert settings(HOST)["RuntimeDirectory"] == [OWN.name]
    assert settings(HOST)["ExecStart"][0].endswith("--user splitplane")
    assert said["ReadOnlyPaths"] == [f"-{DEFAULT_STATE}/guests -{DEFAULT_IMAGE}"]
    assert f"{DEFAULT_STATE.name}/guests" in settings(HOST)["StateDirectory"][0].split()


def analyzes() -> bool:
    """Whether there is the systemd whose questions `KEPT` answers: other versions ask others."""
    if shutil.which("systemd-analyze") is None:
        return False
    said = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True, check=False).stdout
    return said.startswith("systemd 252 ")


@pytest.mark.skipif(not analyzes(), reason="no systemd-analyze of systemd 252 here")
@pytest.mark.parametrize("unit", UNITS)
def test_what_a_unit_keeps_of_root_is_argued(unit: str) -> None:
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager"]
    path, quiet = str(DOCS / f"{unit}.service"), os.environ | {"SYSTEMD_LOG_LEVEL": "err"}
    listed = subprocess.run([*command, "--json=short", path], capture_output=True, text=True, check=False, env=quiet)
    left_open = {one["name"] for one in json.loads(listed.stdout) if one["set"] is False}
    assert left_open == KEPT[unit].keys()
    threshold = f"--threshold={round(MOST[unit] * 10)}"
    done = subprocess.run([*command, threshold, path], capture_output=True, text=True, check=False, env=quiet)
    assert done.returncode == 0, done.stdout.splitlines()[-1]
