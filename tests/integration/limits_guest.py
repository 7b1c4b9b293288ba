"""Tries controller/guests/limits.py on control groups of version 2; runs inside a machine, and prints JSON.

Standard library only, besides the image's own and the modules that the test sends along.
"""

import asyncio
import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

from controller.guests import limits
from vrc.guest.kernel import mount

ROOT, DIRECTORY = Path("/tmp/cgroup"), Path("/state/guests/7")
RATE = 1 << 20
LIMITS = limits.Limits(memory_bytes=48 << 20, cpus=0.2, pids=8, disk_bytes_per_s=RATE)
PROCESSOR = 1  # the machine's last
BURN_S = 2.0

# Enters the groups as controller/guests/launcher.py does.
ENTER = "import sys\nfor path in sys.argv[1:]:\n    with open(path, 'w') as file:\n        file.write('0')\n"
GREEDY = ENTER + "x = bytearray(200 << 20)\n"
BURN = ENTER + f"import time\nend = time.monotonic() + {BURN_S}\nwhile time.monotonic() < end: pass\n"
READ = (
    ENTER
    + f"""
import mmap, os, time
file, into = os.open("/dev/vda", os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 1 << 18)
begun, left = time.monotonic(), {2 * RATE}
while left > 0:
    left -= os.readv(file, [into])
print(time.monotonic() - begun)
"""
)
WHERE = ENTER + "import json, os\nprint(json.dumps(sorted(os.sched_getaffinity(0))))\n"
FORK = (
    ENTER
    + """
import os, time
made = 0
try:
    for _ in range(100):
        if not os.fork():
            time.sleep(1000)
        made += 1
except BlockingIOError:
    print(made, flush=True)
    time.sleep(1000)
"""
)


def start(program: str, group: limits.Group) -> "subprocess.Popen[str]":
    """Start a program that enters the groups of a machine."""
    return subprocess.Popen([sys.executable, "-S", "-c", program, *group.procs], stdout=subprocess.PIPE, text=True)


def values(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}


def try_all() -> dict[str, object]:
    """Return what became of every limit."""
    ROOT.mkdir()
    mount("none", str(ROOT), "cgroup2", 0)
    group = limits.make(DIRECTORY, LIMITS, ROOT, cpus=str(PROCESSOR))
    (own,) = limits.groups(DIRECTORY, ROOT)
    found: dict[str, object] = {"missing": group.missing, "procs": group.procs == (f"{own}/cgroup.procs",)}
    found["processors"] = json.loads(start(WHERE, group).communicate()[0])
    found["read_s"] = float(start(READ, group).communicate()[0])
    limits.make(DIRECTORY, dataclasses.replace(LIMITS, disk_bytes_per_s=0), ROOT, cpus=str(PROCESSOR))
    found["unlimited_read_s"] = float(start(READ, group).communicate()[0])
    found["greedy"] = start(GREEDY, group).wait()
    found["killed"] = limits.memory_kills(DIRECTORY, ROOT)
    found["oom_kills"] = values(own / "memory.events")["oom_kill"]
    begun, used = time.monotonic(), values(own / "cpu.stat")["usage_usec"]
    start(BURN, group).wait()
    found["cpus"] = (values(own / "cpu.stat")["usage_usec"] - used) / 1e6 / (time.monotonic() - begun)
    found["throttled"] = values(own / "cpu.stat")["nr_throttled"]
    forking = start(FORK, group)
    assert forking.stdout is not None
    found["forked"] = int(forking.stdout.readline())
    limits.make(DIRECTORY, limits.Limits(64 << 20, 1.5, 16), ROOT)
    found["changed"] = [(own / name).read_text().strip() for name in ("memory.max", "cpu.max", "pids.max")]
    limits.remove(DIRECTORY, ROOT)
    found["kept_while_used"] = own.exists()
    asyncio.run(limits.empty(DIRECTORY, ROOT))
    found["ended"] = forking.wait()
    limits.remove(DIRECTORY, ROOT)
    found["left"] = own.exists()
    return found


if __name__ == "__main__":
    print(json.dumps(try_all()))
