"""What a machine's init asks of its kernel: mounts, address, clock, memory, power."""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import time
from collections.abc import Container

from vrc.guest.enclosure import bring_up
from vrc.guest.kernel import EnclosureError, mount

CONTROL_PORT = "splitplane.control"
"""The name that QEMU gives the virtio port of the control channel."""
TERMINAL_PORT, TERMINALS = "splitplane.terminal", 4
"""The name of those of operators' terminals, which a number follows, and how many there are at most."""
ADDRESS, NETMASK = "10.0.2.15", "255.255.255.0"
"""What QEMU's user network expects of a machine."""
SCARCE_MIB, SCARCE_PERCENT = 4, 4
"""Below the larger of these, memory is scarce."""
CLOCK_AHEAD_S = 300
"""A machine's clock may be this much later than the seed's time before it is set: starting takes a while."""

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_REBOOT_POWER_OFF = 0x4321FEDC
_SIOCSIFADDR, _SIOCSIFNETMASK = 0x8916, 0x891C
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
_libc = ctypes.CDLL(None, use_errno=True)

_MOUNTS = (
    ("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None),
    ("sysfs", "/sys", "sysfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None),
    ("devtmpfs", "/dev", "devtmpfs", _MS_NOSUID, "mode=755"),
    ("tmpfs", "/run", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=32m"),
    ("tmpfs", "/tmp", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777,size=32m"),
    ("devpts", "/dev/pts", "devpts", _MS_NOSUID | _MS_NOEXEC, "ptmxmode=0666,mode=620"),
)


def mount_all() -> list[str]:
    """Mount what is not there yet; returns what the kernel refused."""
    refused = []
    for source, target, kind, flags, options in _MOUNTS:
        with contextlib.suppress(OSError):
            os.makedirs(target, exist_ok=True)
        if os.path.ismount(target):
            continue
        try:
            mount(source, target, kind, flags, options)
        except EnclosureError as error:
            refused.append(str(error))
    return refused


def find_port(name: str, directory: str = "/sys/class/virtio-ports") -> str | None:
    """Return the device of the virtio port called ``name``, None where the machine has none."""
    with contextlib.suppress(FileNotFoundError):
        for port in sorted(os.listdir(directory)):
            with contextlib.suppress(OSError), open(f"{directory}/{port}/name") as file:
                if file.read().strip() == name:
                    return f"/dev/{port}"
    return None


def notify_by_signal(fd: int) -> None:
    """Have the kernel send SIGIO to this process when the host opens or closes its end of a virtio port."""
    fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)


def bring_up_network(interface: str = "eth0") -> None:
    """Give the machine its address on the link to QEMU, without IPv6 and without a route; OSError where refused."""
    with contextlib.suppress(OSError), open(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6", "w") as file:
        file.write("1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for operation, address in ((_SIOCSIFADDR, ADDRESS), (_SIOCSIFNETMASK, NETMASK)):
            sockaddr = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(control, operation, struct.pack("16s16s8x", interface.encode(), sockaddr))
    for name in ("lo", interface):
        bring_up(name)


def clock_is_wrong(now_s: float, seed_s: int) -> bool:
    """Tell whether the clock cannot be right, given the host's time before the machine was started."""
    return not seed_s <= now_s <= seed_s + CLOCK_AHEAD_S


def correct_clock(seed_s: int) -> bool:
    """Set the clock by the seed where it is wrong; tells whether it was."""
    if not clock_is_wrong(time.time(), seed_s):
        return False
    time.clock_settime(time.CLOCK_REALTIME, seed_s)
    return True


def step_clock(step_s: float) -> None:
    """Put the clock forward, or back; OSError, ValueError or OverflowError where that leads nowhere."""
    time.clock_settime(time.CLOCK_REALTIME, time.time() + step_s)


def memory() -> tuple[int, int, int]:
    """Return total and available memory in MiB, and how many processes the kernel killed for want of it."""
    with open("/proc/meminfo") as file:
        fields = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in file)}
    return fields["MemTotal"] // 1024, fields["MemAvailable"] // 1024, oom_kills()


def stay_in_memory() -> None:
    """Keep this process's pages, so that it still runs when the others have left no memory for its code."""
    _libc.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT)


def is_scarce(total_mib: int, free_mib: int) -> bool:
    """Tell whether so little memory is left that processes only read their own code again and again.

    The kernel ends that itself only when nothing can be dropped any more; with all programs in a compressed file
    system it can for minutes drop and read pages of theirs.
    """
    return free_mib < max(SCARCE_MIB, total_mib * SCARCE_PERCENT // 100)


def largest_process(spared: Container[int]) -> tuple[int, str]:
    """Return the process that the kernel would kill for want of memory, and its name; (0, "") where there is none."""
    worst, most = 0, 0
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{entry}/oom_score") as file:
            score = int(file.read())
            if score > most and int(entry) not in spared:
                worst, most = int(entry), score
    with contextlib.suppress(OSError), open(f"/proc/{worst}/comm") as file:
        return worst, file.read().strip()
    return 0, ""


def oom_kills() -> int:
    """Return how many processes the kernel has killed for want of memory."""
    with open("/proc/vmstat") as file:
        return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)


def uptime_s() -> float:
    """Return for how many seconds the kernel has been running."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def power_off() -> None:
    """End the machine at once."""
    os.sync()
    _libc.reboot(_REBOOT_POWER_OFF)
