"""Nobody in a guest makes a call of the kernel that reaches beyond it, whatever capabilities there are."""

import json
import os
import signal
import socket
from pathlib import Path

import pytest
from guest_net import guest_bed, processes

from vrc.guest.privileges import REFUSED, REFUSED_NEWER

pytestmark = pytest.mark.root

# Makes each call with arguments that cannot harm; says which one did not fail with the error that it should.
CALLS = """
import ctypes, errno, json, sys
libc, library = ctypes.CDLL(None, use_errno=True), ctypes.CDLL("libseccomp.so.2")

def failed(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(number, *map(ctypes.c_long, arguments))
    return errno.errorcode.get(ctypes.get_errno(), "none")

found = {name: failed(number, *[-1] * 6) for name, number in json.loads(sys.argv[1]).items()}
for name in sys.argv[2:]:
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number >= 0:
        found[name] = failed(number, *[-1] * 6)
clone = library.seccomp_syscall_resolve_name(b"clone")
for bit in (7, 17, 25, 26, 27, 28, 29, 30):
    found[f"clone {bit}"] = failed(clone, 1 << bit, 0, 0, 0, 0)
mmap, memfd = (library.seccomp_syscall_resolve_name(name) for name in (b"mmap", b"memfd_create"))
found["mmap of huge pages"] = failed(mmap, 0, 1 << 21, 3, 0x40022, -1, 0)
found["memfd of huge pages"] = failed(memfd, 0, 4)
found["clone3"] = failed(435, 0, 0)
setsockopt = library.seccomp_syscall_resolve_name(b"setsockopt")
found["setsockopt of a linger"] = failed(setsockopt, -1, 1, 13, 0, 0)
print(json.dumps(found))
"""


async def test_calls_that_reach_beyond_a_guest_are_refused_to_its_root() -> None:
    async with guest_bed() as bed:
        status = await bed.started(bed.spec())
        done = bed.run(status, "/usr/bin/python3", "-c", CALLS, json.dumps(REFUSED_NEWER), *REFUSED)
        found = json.loads(done.stdout)
        assert found.pop("clone3") == "ENOSYS"
        assert len(found) > 40
        assert found["io_setup"] == "EPERM"  # of its contexts there is one number for the whole host
        assert {name: error for name, error in found.items() if error != "EPERM"} == {}


# Of which families there are sockets and pairs of them, of any type.
FAMILIES = """
import ctypes, errno, json
libc, library = ctypes.CDLL(None, use_errno=True), ctypes.CDLL("libseccomp.so.2")
calls = [library.seccomp_syscall_resolve_name(name) for name in (b"socket", b"socketpair")]
refused, made = errno.EAFNOSUPPORT, set()
for family in range(256):
    for above in (0, 1 << 32):  # the kernel looks at an int alone
        for call in calls:
            for kind in range(1, 11):
                ctypes.set_errno(0)
                got = libc.syscall(call, ctypes.c_long(family | above), kind, 0, (ctypes.c_int * 2)())
                if got >= 0 or ctypes.get_errno() != refused:
                    made.add(family)
print(json.dumps(sorted(made)))
"""


async def test_root_of_a_guest_has_sockets_of_no_family_but_those_of_its_own_namespaces() -> None:
    async with guest_bed() as bed:
        status = await bed.started(bed.spec())
        families = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET)
        assert json.loads(bed.run(status, "/usr/bin/python3", "-c", FAMILIES).stdout) == [*map(int, families)]


async def test_every_process_of_a_guest_has_the_filter_and_what_an_operator_runs_there() -> None:
    async with guest_bed() as bed:
        status = await bed.started(bed.spec())
        found = processes(status)
        assert {"vr-guest", "zebra", "bgpd", "staticd", "python"} <= found.keys()
        for name, pid in found.items():
            assert "\nSeccomp:\t2\n" in Path(f"/proc/{pid}/status").read_text(), name
        own = bed.run(status, "cat", "/proc/self/status").stdout
        assert "\nSeccomp:\t2\n" in own
        assert "\nNoNewPrivs:\t1\n" in own
        first = Path(f"/proc/{status.pid}/status").read_text()
        [kept] = [line for line in first.splitlines() if line.startswith("CapBnd:")]
        assert kept in own.splitlines()


CORES = """
import errno, json, resource
def refused(*limits):
    try:
        resource.prlimit(0, resource.RLIMIT_CORE, limits)
    except OSError as error:
        return errno.errorcode[error.errno]
    return resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
print(json.dumps([resource.getrlimit(resource.RLIMIT_CORE), refused(0, 1), refused(0, 0)]))
"""


async def test_no_crash_in_a_guest_starts_what_the_host_takes_dumps_with() -> None:
    """The kernel starts it with any limit but one of one octet (core(5))."""
    async with guest_bed() as bed:
        status = await bed.started(bed.spec())
        for name, pid in processes(status).items():
            limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
            [core] = [line for line in limits if line.startswith("Max core file size")]
            assert core.split()[4:6] == ["1", "1"], name
        done = bed.run(status, "/usr/bin/python3", "-c", CORES)
        assert json.loads(done.stdout) == [[1, 1], "EPERM", "EPERM"]


async def test_a_command_that_is_not_there_is_told_as_a_shell_would() -> None:
    async with guest_bed() as bed:
        status = await bed.started(bed.spec())
        done = bed.run(status, "no-such-command")
        assert (done.returncode, done.stderr) == (127, "no-such-command: No such file or directory\n")
        assert bed.run(status, "/etc/passwd").returncode == 126
        assert os.path.exists(f"/proc/{status.pid}")


async def test_a_command_does_not_ignore_what_python_does() -> None:
    async with guest_bed() as bed:
        status = await bed.started(bed.spec())
        done = bed.run(status, "sh", "-c", "yes | head -n 1")
        assert (done.returncode, done.stdout, done.stderr) == (0, "y\n", "")
        ignored = int(bed.run(status, "grep", "SigIgn", "/proc/self/status").stdout.split()[1], 16)
        assert not any(ignored >> number - 1 & 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))
