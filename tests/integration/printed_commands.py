"""Commands and what they print, as a page of the manual has them; runs them in an enclosure and compares.

A ```console block has commands behind `$ `. One goes on where a line ends in a backslash, to the END of a
here-document and to the `done` of a loop; what follows is what it prints, standard error included.

    python -m printed_commands PAGE FIRST      runs FIRST and then all of them in one shell, in an enclosure
"""

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.enclosure import run_enclosed
from lab.planes.forwarder import mount_bpffs

ROOT = Path(__file__).parents[2]
LIMIT_S = 180.0
_FENCE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "\x1e"
"""What the shell prints behind each command."""

# Jobs as in a person's shell (`kill %1`); a command gets none of the script, whatever it reads.
_SHELL = f"""
set -m
mapfile -d '' -t commands
for command in "${{commands[@]}}"; do
    eval "$command" </dev/null
    printf '{_MARK}'
done
"""
_BLURRED = (
    (re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}"), "MAC"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"[\d./]+ ?ms\b"), "MS"),
    (re.compile(r"(= MS), pipe \d+"), r"\1"),  # of ping, where an answer took longer than its interval
    (re.compile(r"(nexthop(?:_id=| +))\d+"), r"\1ID"),
)


@dataclass(frozen=True, slots=True)
class Printed:
    """A command and what it prints."""

    command: str
    output: str


def printed_commands(page: str) -> list[Printed]:
    """Return the commands of a page in their order, each with what the page says it prints."""
    return [one for block in _FENCE.findall(page) for one in _of_block(block.splitlines())]


def _of_block(lines: list[str]) -> Iterator[Printed]:
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")] + [len(lines)]
    assert starts[0] == 0, f"a block begins with a command, not with: {lines[0]}"
    for start, end in itertools.pairwise(starts):
        size = _size([line.removeprefix("$ ") for line in lines[start:end]])
        command = "\n".join(lines[start : start + size]).removeprefix("$ ")
        yield Printed(command, "\n".join(lines[start + size : end]))


def _size(lines: list[str]) -> int:
    """Return how many of the lines are the command."""
    if lines[0].endswith("<<'END'"):
        return lines.index("END") + 1
    if lines[0].startswith("for ") and not lines[0].endswith("done"):
        return lines.index("  done") + 1
    return next(number for number, line in enumerate(lines, 1) if not line.endswith("\\"))


def blurred(text: str) -> str:
    """Return the text without what differs from run to run, and without what the shell says of its jobs."""
    lines = [line.rstrip() for line in text.splitlines() if not re.match(r"\[\d+\]", line)]
    text = "\n".join(lines).strip("\n")
    for pattern, word in _BLURRED:
        text = pattern.sub(word, text)
    return text


def run_enclosed_page(page: Path, first: str = "") -> tuple[list[Printed], dict[str, list[str]]]:
    """Run a page's commands, after those of ``first``, in an enclosure; return them with what they print here.

    Beside them what is left when they have ended: network namespaces, interfaces, processes and files of /run.
    """
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{Path(__file__).parent}", "LC_ALL": "C.UTF-8"}
    command = [sys.executable, "-m", "printed_commands", str(page), first]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    answer = json.loads(done.stdout.splitlines()[-1])
    return [Printed(*one) for one in answer["printed"]], answer["left"]


def _program() -> int:
    mount_bpffs()
    page, first = Path(sys.argv[1]), sys.argv[2]
    commands = [one.command for one in printed_commands(page.read_text())]
    told = "\0".join([first or ":", *commands]) + "\0"
    shell = ["bash", "-c", _SHELL]
    done = subprocess.run(shell, input=told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    outputs = done.stdout.split(_MARK)[1:]
    print(json.dumps({"printed": list(zip(commands, outputs, strict=False)), "left": _left()}))
    return 0


def _left() -> dict[str, list[str]]:
    links = json.loads(subprocess.run(["ip", "-j", "link"], stdout=subprocess.PIPE, check=True).stdout)
    others = {1, os.getpid(), os.getppid()}
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return {
        "namespaces": sorted(entry.name for entry in Path("/run/netns").iterdir()),
        "interfaces": sorted(link["ifname"] for link in links),
        "processes": list(filter(None, map(_command, sorted(set(pids) - others)))),
        "run": sorted(str(path) for path in Path("/run").rglob("*")),
        "bpf": sorted(path.name for path in Path("/sys/fs/bpf").iterdir()),
    }


def _command(pid: int) -> str:
    """Return a process's command line; none of one that has ended, whether or not it is reaped yet."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


if __name__ == "__main__":
    sys.exit(run_enclosed("printed_commands", "printed_commands", _program))
