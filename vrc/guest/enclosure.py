"""What a guest sees: the host's files, read-only and in part hidden, and the few that are its own.

    launcher (the host's namespaces)
      └─ stage: own mount namespace, everything read-only; what is the guest's own mounted, the rest hidden
         ├─ pid 1 of the guest: user, network, ipc and uts namespaces of its own, and then waits
         └─ helper: still root of the host: gives that its ids, mounts /proc and /sys for it (kernel_views.py)
            pid 1 goes on: a mount namespace of its own, root of the guest, sysctls, lo

Everything is mounted before pid 1 has its mount namespace, by root of the host. So the mounts in there are copies
that are locked (mount_namespaces(7)): not even a process with CAP_SYS_ADMIN in the guest can lift them.
"""

import fcntl
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from vrc.guest.kernel import (
    CLONE_NEWNS,
    MOUNT_ATTR_NOSUID,
    MOUNT_ATTR_RDONLY,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    EnclosureError,
    mount,
    set_mount,
    unshare,
)
from vrc.guest.namespaces import GuestIds

_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
_TUN = (10, 200)

OWN = "/run/splitplane-guest"
"""Inside the guest, for its root alone: what the supervisor writes for its daemons, and the log to read."""
ETC = f"{OWN}/etc"
"""Where the supervisor writes what the daemons find, read-only, in their folder of /etc."""

FRR_STATE = "/var/lib/frr"
"""Where FRR, from 10 on, keeps what is to survive a daemon: that OSPF restarts gracefully, what was committed."""

_OF_SERVICES = ("/var/cache", "/var/lib", "/var/spool")
"""Where the host's services keep what is theirs: also Unix sockets, which a guest reaches from any network and on a
file system that is read-only, and files that they lock, as whoever may read a file can (flock(2))."""

MAX_FILES = 4096
"""Files and directories in each place where a guest may write."""
MAX_TERMINALS = 256
"""Pseudo terminals of a guest: all guests together have some 3,000 (/proc/sys/kernel/pty)."""
_SCRATCH, _ETC_SIZE, _RUN_SIZE = "32m", "8m", "16m"

# vtysh of FRR 10 asks PAM about its user's account, which stands in a file that no root of a guest may read, and says
# that it failed. Who may use vtysh is decided by the mode of the daemons' sockets.
_PAM, _PAM_TEXT = "/etc/pam.d/frr", "auth sufficient pam_permit.so\naccount sufficient pam_permit.so\n"

# Why: forwarding, as gleaned packets go through the guest; no redirects and no reverse path filter, since the plane
# forwards what the guest never sees; ICMP errors from the address a packet came in by (traceroute); addresses of
# IPv6 stay when a link is set down, as routing daemons expect.
_SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/{}/forwarding": "1",
    "net/ipv6/conf/{}/forwarding": "1",
    "net/ipv4/conf/{}/send_redirects": "0",
    "net/ipv4/conf/{}/accept_redirects": "0",
    "net/ipv4/conf/{}/rp_filter": "0",
    "net/ipv6/conf/{}/accept_ra": "0",
    "net/ipv6/conf/{}/accept_redirects": "0",
    "net/ipv6/conf/{}/keep_addr_on_down": "1",
    "net/ipv4/icmp_errors_use_inbound_ifaddr": "1",
}


@dataclass(frozen=True, slots=True)
class Bind:
    """A directory or file of the host that the guest sees at ``target``, read-only."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Folders:
    """Where the daemons of a guest find their text and keep their sockets; empty where they have no such folder."""

    etc: str
    run: str
    owner: tuple[int, int]  # of the latter: a user and a group of the guest


def close_in(binds: Iterable[Bind], hidden: Iterable[str], folders: Folders, ids: GuestIds) -> None:
    """Give the calling process a mount namespace where only what is mounted here is a guest's, and ``hidden`` empty.

    Elsewhere everything is read-only and set-user-id programs have no effect; /run, /tmp, /var/log, /var/tmp, /dev
    and, where there is one, /var/lib/frr are fresh; nothing else is in /var/cache, /var/lib and /var/spool. What the
    guest may write is memory, and bounded.
    """
    unshare(CLONE_NEWNS)
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    # Sources may lie below something that is about to be hidden: hold them first.
    sources = [(bind, _open_path(bind.source)) for bind in binds]
    set_mount("/", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, recursive=True)
    for writable in ("/proc", "/sys"):  # in a container a fresh mount must not be less restricted than what is there
        if os.path.ismount(writable):
            set_mount(writable, 0, MOUNT_ATTR_RDONLY)
    root = ids.on_host(0)
    scratch = [one for one in ("/run", "/tmp", "/var/log", "/var/tmp", FRR_STATE) if os.path.isdir(one)]
    for directory in _OF_SERVICES:
        if os.path.isdir(directory) and not sys.base_prefix.startswith(f"{directory}/"):
            hide_directory(directory, [one for one in scratch if one.startswith(f"{directory}/")])
    for directory in scratch:
        _scratch(directory, "1777" if directory.endswith("tmp") else "755", _SCRATCH, root, root)
    for directory in hidden:
        if os.path.isdir(directory):
            hide_directory(directory)
    _make_devices(ids)
    _make_folders(folders, ids)
    _answer_for_accounts()
    for bind, fd in sources:
        _bind(bind, fd)
        os.close(fd)


def _open_path(source: str) -> int:
    try:
        return os.open(source, os.O_PATH)
    except OSError as error:
        raise EnclosureError(f"{source}: {error.strerror}") from error


def _scratch(target: str, mode: str, size: str, user: int, group: int) -> None:
    """Mount a place where the guest may write; user and group are the host's."""
    options = f"mode={mode},size={size},nr_inodes={MAX_FILES},uid={user},gid={group}"
    mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options)


def hide_directory(target: str, kept: Iterable[str] = ()) -> None:
    """Have in a directory's place one that has nothing but directories that are ``kept``, empty as well."""
    mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755,size=4k")
    for directory in kept:
        os.mkdir(directory)
    set_mount(target, MOUNT_ATTR_RDONLY, 0)


def _make_folders(folders: Folders, ids: GuestIds) -> None:
    root = ids.on_host(0)
    os.mkdir(OWN, 0o700)
    os.chown(OWN, root, root)
    os.mkdir(ETC)
    _scratch(ETC, "755", _ETC_SIZE, root, root)
    if folders.etc:
        held = _open_path(ETC)
        _bind(Bind(ETC, folders.etc), held)
        os.close(held)
    if folders.run:
        os.makedirs(folders.run, exist_ok=True)
        _scratch(folders.run, "755", _RUN_SIZE, *map(ids.on_host, folders.owner))


def _answer_for_accounts() -> None:
    if not os.path.exists(_PAM):
        return
    own = f"{OWN}/pam"
    with open(own, "w") as file:
        file.write(_PAM_TEXT)
    os.chmod(own, 0o644)
    held = _open_path(own)
    _bind(Bind(own, _PAM), held)
    os.close(held)


def _bind(bind: Bind, fd: int) -> None:
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.makedirs(bind.target, exist_ok=True)
    elif not os.path.exists(bind.target):
        os.makedirs(os.path.dirname(bind.target), exist_ok=True)
        os.close(os.open(bind.target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(f"/proc/self/fd/{fd}", bind.target, None, MS_BIND)
    set_mount(bind.target, MOUNT_ATTR_RDONLY, 0)


def _make_devices(ids: GuestIds) -> None:
    mount("tmpfs", "/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, f"mode=755,size=64k,nr_inodes={MAX_FILES}")
    mask = os.umask(0)
    for name, numbers in _DEVICES.items():
        os.mknod(f"/dev/{name}", 0o666 | stat.S_IFCHR, os.makedev(*numbers))
    os.mkdir("/dev/net", 0o755)
    os.mknod("/dev/net/tun", 0o600 | stat.S_IFCHR, os.makedev(*_TUN))
    os.chown("/dev/net/tun", ids.vrc, ids.vrc)
    os.umask(mask)
    for directory in ("pts", "shm"):
        os.mkdir(f"/dev/{directory}", 0o755)
    terminals = f"newinstance,ptmxmode=0666,mode=620,max={MAX_TERMINALS}"
    mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, terminals)
    _scratch("/dev/shm", "1777", _SCRATCH, ids.on_host(0), ids.on_host(0))
    for link, target in {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1"}.items():
        os.symlink(target, f"/dev/{link}")


def settle_in(hostname: str) -> None:
    """As pid 1 and root of the guest: set the name and the sysctls, bring lo up."""
    socket.sethostname(hostname)
    os.chdir("/")
    write_sysctls()
    bring_up("lo")


def write_sysctls() -> None:
    """Set what a router needs of its network namespace, for the interfaces that are made in it from now on."""
    for key, value in _SYSCTLS.items():
        for scope in ("all", "default") if "{}" in key else ("",):
            _write_sysctl(key.format(scope), value)


def _write_sysctl(key: str, value: str) -> None:
    try:
        with open(f"/proc/sys/{key}", "w") as file:
            file.write(value)
    except OSError as error:
        raise EnclosureError(f"sysctl {key}: {error.strerror}") from error


def bring_up(interface: str) -> None:
    """Set a network interface up (netdevice(7)); OSError where refused."""
    get_flags, set_flags, up = 0x8913, 0x8914, 1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", interface.encode(), 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(control, get_flags, request), 16)
        fcntl.ioctl(control, set_flags, struct.pack("16sH14x", interface.encode(), flags | up))
