"""Hosts behind the ports of a device: a veth pair each, the far end in a network namespace of its own."""

import contextlib

from ovs import Host, namespace, sh

JUMBO = 9216


def add_host(
    stack: contextlib.ExitStack, here: str, kind: str, number: int, *features: str, mtu: int = JUMBO
) -> Host:
    """Add the host behind port ``number`` of a device in namespace ``here``, with the MAC 02:00:00:00:00:NUMBER.

    ``features`` are more of ethtool's words for the host's end.
    """
    there = stack.enter_context(namespace("sp-host"))
    link, mac = f"p{number}", f"02:00:00:00:00:{number:02x}"
    sh("ip", "-n", here, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", there)
    for place, device, more in ((here, link, ()), (there, "eth0", features)):
        whole = ("tx", "off", "tso", "off", "gso", "off")
        sh("ip", "netns", "exec", place, "ethtool", "-K", device, *whole, *more)
        options = f"net.ipv6.conf.{device}"
        quiet = f"{options}.accept_dad=0" if place == there else f"{options}.disable_ipv6=1"
        sh("ip", "netns", "exec", place, "sysctl", "-qw", quiet)
    sh("ip", "-n", here, "link", "set", link, "mtu", str(mtu), "up")
    sh("ip", "-n", there, "link", "set", "eth0", "mtu", str(mtu), "address", mac, "up")
    return Host(there, kind, number, link, mac)
