"""What a guest is closed in: its namespaces, the few files it sees, the privileges nobody in it needs.

    launcher (the host's namespaces)
      └─ stage: own mount namespace, everything read-only; what is the guest's own bind-mounted in, the rest hidden;
         │      then new user, network, mount, pid, ipc and uts namespaces
         └─ pid 1 of the guest: /proc, /sys and /dev/pts of its own, sysctls, lo

The hiding is done before the user namespace is entered. So the guest's mount namespace has copies of those mounts
that are locked (mount_namespaces(7)): not even a process with CAP_SYS_ADMIN in the guest can lift them. The user
namespace maps every id to itself: files keep their owners, and capabilities reach no further than the guest.
"""

import contextlib
import ctypes
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from wire.scheduling import work_in_batches

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
_GUEST_NAMESPACES = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID = 1, 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_SYS_MOUNT_SETATTR = 442  # the same number on every architecture
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38

# What the supervisor and its children use; everything else leaves the bounding set.
_CAPABILITIES_KEPT = frozenset({0, 1, 3, 5, 6, 7, 8, 10, 12, 13, 21})
# chown, dac_override, fowner, kill, setgid, setuid, setpcap, net_bind_service, net_admin, net_raw, sys_admin

_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
_TUN = (10, 200)

OWN = "/run/splitplane-guest"
"""Inside the guest: where the supervisor has its own directory."""

FRR_STATE = "/var/lib/frr"
"""Where FRR, from 10 on, keeps what is to survive a daemon: that OSPF restarts gracefully, what was committed."""

EXIT_RUNS_ALREADY = 75
"""vr-guest's exit status where there is a guest in its directory already."""

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

_libc = ctypes.CDLL(None, use_errno=True)


class EnclosureError(Exception):
    """The kernel refused a part of the enclosure; the text says which."""


class NoUserNamespace(EnclosureError):
    """The guest cannot have a user namespace here (a sysctl, or a container that masks /proc)."""


@dataclass(frozen=True, slots=True)
class Bind:
    """A directory or file of the host that the guest sees at ``target``."""

    source: str
    target: str
    writable: bool = False


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise EnclosureError(f"{what}: {os.strerror(number)}") from OSError(number, os.strerror(number))


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """mount(2); EnclosureError names the target."""
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() if options else None,
    )
    _check(result, f"mount on {target}")


def _set_mount(target: str, attr_set: int, attr_clear: int, recursive: bool = False) -> None:
    attributes = struct.pack("=QQQQ", attr_set, attr_clear, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    result = _libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, target.encode(), flags, attributes, len(attributes))
    _check(result, f"mount_setattr of {target}")


def unshare(flags: int) -> None:
    """unshare(2)."""
    _check(_libc.unshare(flags), "unshare")


@contextlib.contextmanager
def other_network() -> Iterator[int]:
    """Be in a new network namespace for a while; yields a descriptor of the one left. EnclosureError.

    RuntimeError where there is no way back, which nobody should catch.
    """
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        unshare(CLONE_NEWNET)
        try:
            yield own
        finally:
            if _libc.setns(own, CLONE_NEWNET) != 0:
                raise RuntimeError(f"setns: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(own)


def close_in(binds: list[Bind], hidden: list[str], tun_owner: int) -> None:
    """Give the calling process a mount namespace where only ``binds`` are its own and ``hidden`` are empty.

    Outside of the binds everything is read-only and set-user-id programs have no effect; /run, /tmp, /var/log,
    /var/tmp, /dev and, where there is one, /var/lib/frr are fresh. ``tun_owner`` is who may open /dev/net/tun.
    """
    unshare(CLONE_NEWNS)
    mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    # Sources may lie below something that is about to be hidden: hold them first.
    sources = [(bind, _open_path(bind.source)) for bind in binds]
    _set_mount("/", _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID, 0, recursive=True)
    for writable in ("/proc", "/sys"):  # a fresh mount of either must not be less restricted than what is there
        if os.path.ismount(writable):
            _set_mount(writable, 0, _MOUNT_ATTR_RDONLY)
    for directory in ("/run", "/tmp", "/var/log", "/var/tmp"):
        _tmpfs(directory, "mode=1777" if directory.endswith("tmp") else "mode=755")
    if os.path.isdir(FRR_STATE):
        _tmpfs(FRR_STATE, "mode=755")
    for directory in hidden:
        if os.path.isdir(directory):
            _tmpfs(directory, "mode=755,size=4k", _MS_RDONLY)
    _make_devices(tun_owner)
    for bind, fd in sources:
        _bind(bind, fd)
        os.close(fd)


def _open_path(source: str) -> int:
    try:
        return os.open(source, os.O_PATH)
    except OSError as error:
        raise EnclosureError(f"{source}: {error.strerror}") from error


def _tmpfs(target: str, options: str, flags: int = 0) -> None:
    if "size" not in options:
        options += ",size=32m"
    mount("tmpfs", target, "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC | flags, options)


def _bind(bind: Bind, fd: int) -> None:
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.makedirs(bind.target, exist_ok=True)
    elif not os.path.exists(bind.target):
        os.makedirs(os.path.dirname(bind.target), exist_ok=True)
        os.close(os.open(bind.target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(f"/proc/self/fd/{fd}", bind.target, None, _MS_BIND)
    _set_mount(bind.target, *((0, _MOUNT_ATTR_RDONLY) if bind.writable else (_MOUNT_ATTR_RDONLY, 0)))


def _make_devices(tun_owner: int) -> None:
    mount("tmpfs", "/dev", "tmpfs", _MS_NOSUID | _MS_NOEXEC, "mode=755,size=64k")
    mask = os.umask(0)
    for name, numbers in _DEVICES.items():
        os.mknod(f"/dev/{name}", 0o666 | stat.S_IFCHR, os.makedev(*numbers))
    os.mkdir("/dev/net", 0o755)
    os.mknod("/dev/net/tun", 0o600 | stat.S_IFCHR, os.makedev(*_TUN))
    os.chown("/dev/net/tun", tun_owner, tun_owner)
    os.umask(mask)
    for directory in ("pts", "shm"):
        os.mkdir(f"/dev/{directory}", 0o755)
    _tmpfs("/dev/shm", "mode=1777")
    for link, target in {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1"}.items():
        os.symlink(target, f"/dev/{link}")


def enter_namespaces(user_namespace: bool) -> None:
    """Leave the host's namespaces; the next child is pid 1 of the guest. NoUserNamespace where one is refused."""
    if not user_namespace:
        unshare(_GUEST_NAMESPACES)
        return
    ready_read, ready_write = os.pipe()
    done_read, done_write = os.pipe()
    mapper = os.fork()
    if mapper == 0:
        os.close(ready_write)
        os.close(done_read)
        os._exit(_write_maps(os.getppid(), ready_read, done_write))
    os.close(ready_read)
    os.close(done_write)
    try:
        unshare(_GUEST_NAMESPACES | CLONE_NEWUSER)
        os.write(ready_write, b"1")
    except EnclosureError as error:
        raise NoUserNamespace(f"user namespace: {error}") from error
    finally:
        os.close(ready_write)
        mapped = os.read(done_read, 1)
        os.close(done_read)
        os.waitpid(mapper, 0)
    if not mapped:
        raise NoUserNamespace("user namespace: its ids cannot be mapped")


def _write_maps(pid: int, ready: int, done: int) -> int:
    if not os.read(ready, 1):
        return 1
    try:
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{pid}/{name}", "w") as file, open(f"/proc/self/{name}") as own:
                ranges = [[int(field) for field in line.split()] for line in own]
                file.write("".join(f"{inside} {inside} {count}\n" for inside, _, count in ranges))
    except OSError:
        return 1
    os.write(done, b"1")
    return 0


def settle_in(hostname: str, user_namespace: bool) -> None:
    """As pid 1: mount what belongs to the new namespaces, set the sysctls, bring lo up."""
    try:
        mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    except EnclosureError as error:
        if user_namespace:
            raise NoUserNamespace(str(error)) from error
        raise
    # Without the next two a guest works all the same: FRR reads neither, and only some operators' tools do.
    with contextlib.suppress(EnclosureError):
        mount("sysfs", "/sys", "sysfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC | _MS_RDONLY)
    with contextlib.suppress(EnclosureError):
        mount("devpts", "/dev/pts", "devpts", _MS_NOSUID | _MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
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


def give_up_privileges() -> None:
    """Drop from the bounding set what nobody in the guest needs, and forbid gaining privileges by exec.

    The controller may run at a better priority than others (docs/bench.md), which guests do not inherit. They are
    batch work (sched(7)): one that wakes does not interrupt who runs, so daemons that hand routes on to each other
    do so in larger pieces.
    """
    os.setpriority(os.PRIO_PROCESS, 0, max(0, os.getpriority(os.PRIO_PROCESS, 0)))
    work_in_batches()
    for capability in range(64):
        if capability in _CAPABILITIES_KEPT:
            continue
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # past the last capability this kernel knows
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


_IN_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_IN_CREATE = 0x100
_IN_MOVED_TO = 0x80


def watch_directory(path: str) -> int:
    """Return an inotify descriptor that becomes readable when something appears in ``path``."""
    fd = int(_libc.inotify_init1(_IN_NONBLOCK_CLOEXEC))
    if fd < 0 or _libc.inotify_add_watch(fd, path.encode(), _IN_CREATE | _IN_MOVED_TO) < 0:
        raise EnclosureError(f"inotify on {path}: {os.strerror(ctypes.get_errno())}")
    return fd
