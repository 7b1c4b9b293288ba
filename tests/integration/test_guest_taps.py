"""The supervisor holds a queue of a TAP, so that the interface and its carrier survive the VRC."""

import os
import signal

import pytest
from guest_net import guest_bed, processes

from controller.guests.base import GuestSpec

pytestmark = pytest.mark.root

# A VRC that makes eth0 unless it is there, hands one of two queues over, and dies when killed.
VRC = """
import array, fcntl, json, os, signal, socket, struct
def queue():
    fd = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", b"eth0", 0x0002 | 0x1000 | 0x0100))
    return fd
holder = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
holder.connect("/run/splitplane-guest/holder.sock")
holder.send(json.dumps({"op": "list"}).encode())
names = json.loads(holder.recv(4096))["names"]
kept = queue()
if "eth0" not in names:
    socket.send_fds(holder, [json.dumps({"op": "hold", "name": "eth0"}).encode()], [queue()])
    assert json.loads(holder.recv(4096)) == {"ok": True}
print("names", names, flush=True)
signal.pause()
"""


async def test_an_interface_survives_the_death_of_the_vrc() -> None:
    def command(_spec: GuestSpec, python: str) -> list[str]:
        return [python, "-S", "-c", VRC]

    async with guest_bed(command) as bed:
        spec = bed.spec()
        await bed.driver.start(spec)
        log = bed.driver.log_path(spec)
        status = await bed.settled(spec, lambda _: "names []" in log.read_text())
        bed.run(status, "ip", "link", "set", "eth0", "up")
        index = bed.run(status, "cat", "/sys/class/net/eth0/ifindex").stdout
        os.kill(processes(status)["python"], signal.SIGKILL)
        assert bed.run(status, "cat", "/sys/class/net/eth0/carrier").stdout.strip() == "1"
        await bed.settled(spec, lambda _: "names ['eth0']" in log.read_text())
        assert bed.run(status, "cat", "/sys/class/net/eth0/ifindex").stdout == index
