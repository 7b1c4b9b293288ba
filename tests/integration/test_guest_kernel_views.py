"""Root of a guest writes to nothing in /proc and /sys but what is its own, and does not read what tells of others."""

import contextlib
import json
from pathlib import Path

import pytest
from guest_net import guest_bed

from vrc.guest.kernel_views import HIDDEN, HOSTS_SETTINGS, OWN_SETTINGS

pytestmark = pytest.mark.root

# Opens for writing, without writing, whatever has a mode that lets somebody write; processes are the guest's own.
WALK = """
import json, os, stat, sys
opened, tried = [], 0
for top in ("/proc", "/sys"):
    for folder, folders, files in os.walk(top):
        if folder == "/proc":
            folders[:] = [name for name in folders if not name.isdigit()]
        for name in files:
            path = f"{folder}/{name}"
            try:
                mode = os.lstat(path).st_mode
                if not stat.S_ISREG(mode) or not mode & 0o222 or path.startswith(sys.argv[1]):
                    continue
                tried += 1
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                opened.append(path)
            except OSError:
                pass
print(json.dumps([tried, opened]))
"""
READ = """
import json, os, sys
read = []
for path in sys.argv[1:]:
    try:
        if os.listdir(path) if os.path.isdir(path) else os.open(path, os.O_RDONLY):
            read.append(path)
    except OSError:
        pass
print(json.dumps(read))
"""

# Gives each setting that is a number another one; says how many took it.
CHANGE = """
import os, sys
changed = 0
for folder, _, files in os.walk(sys.argv[1]):
    for name in files:
        try:
            with open(f"{folder}/{name}", "r+") as setting:
                first, *others = map(int, setting.read().split())
                for other in (first + 1, first - 1, 1 - first):
                    try:
                        os.pwrite(setting.fileno(), " ".join(map(str, (other, *others))).encode(), 0)
                        changed += 1
                        break
                    except OSError:
                        pass
        except (OSError, ValueError):
            pass
print(changed)
"""


def settings() -> dict[Path, bytes]:
    """The host's, of its network; not what only the kernel writes, such as how many connections it tracks."""
    found = {}
    for path in Path(OWN_SETTINGS).rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and path.stat().st_mode & 0o222:
                found[path] = path.read_bytes()
    return found


async def test_what_root_of_a_guest_sets_of_its_network_is_not_the_host_s() -> None:
    async with guest_bed() as bed:
        status = await bed.started(bed.spec())
        for path in HOSTS_SETTINGS:  # on a host where somebody has written to it nothing else would tell
            if Path(path).exists():
                assert bed.run(status, "sh", "-c", f"echo 1 >{path}").returncode != 0
        before = settings()
        assert int(bed.run(status, "/usr/bin/python3", "-c", CHANGE, OWN_SETTINGS).stdout) > 100
        after = settings()
        changed = {path: value for path, value in before.items() if after.get(path, value) != value}
        for path, value in changed.items():
            with contextlib.suppress(OSError):
                path.write_bytes(value)
        assert changed == {}


async def test_root_of_a_guest_writes_to_the_settings_of_its_network_and_to_nothing_else() -> None:
    async with guest_bed() as bed:
        status = await bed.started(bed.spec())
        tried, opened = json.loads(bed.run(status, "/usr/bin/python3", "-c", WALK, OWN_SETTINGS).stdout)
        assert tried > 100
        assert opened == []
        assert bed.run(status, "sysctl", "-qw", "net.ipv4.ip_default_ttl=63").stderr == ""
        assert bed.run(status, "sh", "-c", "echo 5 >/proc/self/oom_score_adj; cat /proc/self/oom_score_adj").stdout


async def test_root_of_a_guest_reads_nothing_that_tells_of_others() -> None:
    async with guest_bed() as bed:
        status = await bed.started(bed.spec())
        assert json.loads(bed.run(status, "/usr/bin/python3", "-c", READ, *HIDDEN).stdout) == []
        for place in ("/proc/keys", "/proc/sys", "/sys/firmware", "/proc", "/sys"):
            assert bed.run(status, "umount", "-l", place).returncode != 0
            assert place == "/proc" or bed.run(status, "mount", "-o", "remount,bind,rw", place).returncode != 0
        # A new one of either would have all of it again.
        for kind in ("proc", "sysfs"):
            assert bed.run(status, "mount", "-t", kind, kind, "/tmp").returncode != 0
        assert bed.run(status, "ls", "/sys/class/net").stdout.split() == ["lo"]
