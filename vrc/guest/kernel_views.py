"""/proc and /sys as a guest sees them: its own processes and network, and of the kernel what all may know.

    /proc/PID, /proc/self, /proc/sys/net     as the kernel has them: they are the guest's own, but for one
    the rest of /proc, all of /sys           read-only
    what tells of others                     not readable

The kernel refuses most of that to root of a guest by itself, who is no root of the host; but not all files ask who
writes to them, and what stands in one that everybody may read is nobody's decision but the kernel's.
"""

import os

from vrc.guest.enclosure import OWN, hide_directory
from vrc.guest.kernel import (
    MOUNT_ATTR_RDONLY,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    mount,
    set_mount,
)

OWN_SETTINGS = "/proc/sys/net"
"""What of /proc/sys is the guest's network namespace's alone (network_namespaces(7))."""

HOSTS_SETTINGS = (f"{OWN_SETTINGS}/netfilter/nf_hooks_lwtunnel",)
"""What is not, and the kernel lets root of a guest write: this one turns a part of netfilter on for the whole host,
and nobody can turn it off again."""

HIDDEN = (
    # memory, addresses and messages of the kernel
    *("/proc/kcore", "/proc/kmsg", "/proc/kallsyms", "/proc/vmallocinfo", "/proc/iomem", "/proc/ioports"),
    *("/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags", "/proc/pagetypeinfo", "/proc/slabinfo"),
    # keys, locks, timers and the processor time of everybody's processes
    *("/proc/keys", "/proc/key-users", "/proc/locks", "/proc/timer_list", "/proc/timer_stats"),
    *("/proc/sched_debug", "/proc/schedstat", "/proc/latency_stats", "/proc/interrupts"),
    # the host's devices; the power that the processor draws tells what it does
    *("/proc/acpi", "/proc/asound", "/proc/scsi", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sysrq-trigger"),
    *("/sys/firmware", "/sys/devices/virtual/powercap"),
    *("/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/kernel/slab"),
    *("/sys/fs/bpf", "/sys/fs/cgroup", "/sys/fs/pstore"),
)
"""Files and directories that are hidden, where the kernel has them."""


def mount_kernel_views() -> None:
    """Mount /proc and /sys of the PID and network namespaces that the calling process, root of the host, is in."""
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY)
    for name in os.listdir("/proc"):
        path = f"/proc/{name}"
        if not (name.isdigit() or os.path.islink(path)) and _is_writable(path):
            _make_read_only(path)
    mount(OWN_SETTINGS, OWN_SETTINGS, None, MS_BIND)
    set_mount(OWN_SETTINGS, 0, MOUNT_ATTR_RDONLY)
    _keep_hosts_settings()
    _hide()


def _keep_hosts_settings() -> None:
    """Make the host's settings read-only; where a module brings one that is not loaded yet (nf_conntrack, before
    Linux 6.10), all that stand beside it."""
    for path in HOSTS_SETTINGS:
        for place in (path, os.path.dirname(path)):
            if os.path.exists(place):
                _make_read_only(place)
                break


def _is_writable(path: str) -> bool:
    """Whether a file's mode lets anybody write; of a directory, some file in it may."""
    return os.path.isdir(path) or os.stat(path).st_mode & 0o222 != 0


def _make_read_only(path: str) -> None:
    mount(path, path, None, MS_BIND)
    set_mount(path, MOUNT_ATTR_RDONLY, 0)


def _hide() -> None:
    nothing = f"{OWN}/hidden"
    os.close(os.open(nothing, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0))
    for path in HIDDEN:
        if os.path.isdir(path):
            hide_directory(path)
        elif os.path.exists(path):
            mount(nothing, path, None, MS_BIND)
            set_mount(path, MOUNT_ATTR_RDONLY, 0)
    os.unlink(nothing)  # the mounts have it
