"""What nobody in a guest may do: use privileges that no router needs, and make calls of the kernel that none makes.

It imports nothing of ours, because it is also a program of its own, for what an operator runs in a guest:

    python3 -c "$(cat vrc/guest/privileges.py)" COMMAND …      gives up the same, and becomes the command

The filter of calls is libseccomp's (seccomp(2)). What is not on its list is allowed; of other architectures than the
machine's own, such as 32-bit programs, nothing is.
"""

import contextlib
import ctypes
import errno
import os
import resource
import signal
import sys

# What the supervisor and its children use; everything else leaves the bounding set.
_CAPABILITIES_KEPT = frozenset({0, 1, 3, 5, 6, 7, 8, 10, 12, 13, 21})
# chown, dac_override, fowner, kill, setgid, setuid, setpcap, net_bind_service, net_admin, net_raw, sys_admin

REFUSED = (
    # other views of the file system than the guest's own
    *("mount", "umount2", "pivot_root", "open_by_handle_at"),
    # other namespaces; clone is refused where it makes some
    *("setns", "unshare"),
    # programs and modules in the kernel, another kernel
    *("bpf", "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot"),
    # keys: not namespaced
    *("add_key", "request_key", "keyctl"),
    # other processes' memory and descriptors, the kernel's counters and faults
    *("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "perf_event_open", "userfaultfd"),
    # what is the host's alone, and what no daemon needs of a kernel that is shared
    *("swapon", "swapoff", "acct", "quotactl", "syslog", "iopl", "ioperm", "fanotify_init", "io_setup"),
    # what waits for the host's disks to write all that others wrote
    *("sync", "syncfs"),
)
"""Calls that fail with EPERM, by name."""

REFUSED_NEWER = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "open_tree_attr": 467,
}
"""The same, with their numbers, which are alike on every architecture and may be newer than the library."""

_CLONE3 = 435  # its flags are in memory, where no filter looks; the C library goes back to clone where it is unknown
_NEW_NAMESPACES = (0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
# CLONE_NEW: time, mount, cgroup, uts, ipc, user, pid, network
_HUGE_PAGES = (("mmap", 3, 0x40000), ("memfd_create", 1, 0x4))
# where MAP_HUGETLB and MFD_HUGETLB stand: of the host's huge pages, which no group of memory counts
_OWN_FAMILIES = frozenset({1, 2, 10, 16, 17})  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET
_FAMILIES = 64
"""More than the kernel has. Of the others some are of no network namespace (AF_ALG, AF_VSOCK, AF_QIPCRTR), some take
memory that is counted as nobody's (the rings of AF_XDP), and each has the kernel load its module."""
_LINGER = (1, 13)  # SOL_SOCKET, SO_LINGER

_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_ALLOW, _ERRNO, _NE, _MASKED_EQ = 0x7FFF0000, 0x00050000, 1, 7  # of seccomp.h
_INT = 0xFFFFFFFF  # what the kernel looks at of a register that holds an int
_ENOTSUPP = 524  # the kernel has compiled filters of as many octets as it may (net.core.bpf_jit_limit)
_LIBRARY = "libseccomp.so.2"
_libc = ctypes.CDLL(None, use_errno=True)


class _Comparison(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


class _Filter:
    """A filter under construction (seccomp_init(3)); OSError where the library or the kernel refuses."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(_LIBRARY, use_errno=True)
        except OSError:
            raise OSError(errno.ENOENT, f"{_LIBRARY} not found; apt-get install libseccomp2") from None
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._library.seccomp_init(ctypes.c_uint32(_ALLOW)))

    def number(self, name: str) -> int:
        """Return a call's number, negative where this architecture has none such."""
        return int(self._library.seccomp_syscall_resolve_name(name.encode()))

    def refuse(self, number: int, reason: int, *where: _Comparison) -> None:
        """Have a call fail with ``reason``, only with the arguments that ``where`` names."""
        compared = (_Comparison * len(where))(*where)
        action = ctypes.c_uint32(_ERRNO | reason)
        self._check(self._library.seccomp_rule_add_array(self._context, action, number, len(where), compared))

    def load(self) -> None:
        """Put it in force for this thread and what it starts."""
        self._check(self._library.seccomp_load(self._context))
        self._library.seccomp_release(self._context)

    @staticmethod
    def _check(result: int) -> None:
        if result == -errno.ECANCELED and ctypes.get_errno() == _ENOTSUPP:
            reason = "the kernel holds no more; raise net.core.bpf_jit_limit, or end a guest that has attached many"
            raise OSError(errno.ENOSPC, f"filter of system calls: {reason}")
        if result < 0:
            raise OSError(-result, f"filter of system calls: {os.strerror(-result)}")


def refuse_system_calls() -> None:
    """Refuse, for this thread and all that it starts, the calls that no router makes. OSError where that fails."""
    made = _Filter()
    known = (number for name in REFUSED if (number := made.number(name)) >= 0)
    for number in (*known, *REFUSED_NEWER.values()):
        made.refuse(number, errno.EPERM)
    for flag in _NEW_NAMESPACES:
        made.refuse(made.number("clone"), errno.EPERM, _Comparison(0, _MASKED_EQ, flag, flag))
    for name, argument, flag in _HUGE_PAGES:
        made.refuse(made.number(name), errno.EPERM, _Comparison(argument, _MASKED_EQ, flag, flag))
    made.refuse(_CLONE3, errno.ENOSYS)
    for name in ("socket", "socketpair"):
        for family in range(_FAMILIES):
            if family not in _OWN_FAMILIES:
                made.refuse(made.number(name), errno.EAFNOSUPPORT, _Comparison(0, _MASKED_EQ, _INT, family))
    # Whoever closes a connection that is passed on (unix(7)) would wait for as long as the guest likes.
    linger = [_Comparison(1 + place, _MASKED_EQ, _INT, value) for place, value in enumerate(_LINGER)]
    made.refuse(made.number("setsockopt"), errno.EPERM, *linger)
    core = (_MASKED_EQ, _INT, resource.RLIMIT_CORE)
    made.refuse(made.number("setrlimit"), errno.EPERM, _Comparison(0, *core))
    made.refuse(made.number("prlimit64"), errno.EPERM, _Comparison(1, *core), _Comparison(2, _NE, 0))
    made.load()


def leave_no_core() -> None:
    """Let nobody dump core. Where the host has a program take dumps (``|`` in core_pattern, core(5)) the kernel
    starts that as root of the host with any limit but one octet; the filter has it stay so. One that is nothing
    already, for good, nobody may raise to that."""
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))


def give_up_privileges() -> None:
    """Drop from the bounding set what nobody in the guest needs, and forbid gaining privileges by exec. OSError."""
    for capability in range(64):
        if capability in _CAPABILITIES_KEPT:
            continue
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # past the last capability this kernel knows
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs: refused")


def confining() -> list[str]:
    """Return what goes before a command that is run in a guest, whose files may not have this one."""
    with open(__file__) as program:
        return ["/usr/bin/python3", "-I", "-S", "-c", program.read()]


def main(argv: list[str]) -> None:
    """Become a command as the guest's own are. Exit status 127 where it is not there, as a shell has it."""
    try:
        leave_no_core()
        give_up_privileges()
        refuse_system_calls()
    except OSError as error:
        sys.exit(f"vr-guest: {error.strerror}")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and so would the command
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main(sys.argv[1:])
