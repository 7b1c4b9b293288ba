"""Runs a benchmark in a process of its own, which ends in order with this one, however that ends."""

import signal
import subprocess
import sys


def last_line(module: str, *arguments: str) -> str:
    """Run a benchmark and return its result, the last line; SystemExit with its status where it fails."""
    # The terminal tells it as well, and it puts away what it has begun. Not by preexec_fn: what gRPC does at a fork,
    # where there are threads, may end it.
    own = ["setpriv", "--pdeathsig", "TERM", "--", "env", "--default-signal=INT", sys.executable]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = subprocess.run([*own, "-m", module, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    finally:
        signal.signal(signal.SIGINT, before)
    if done.returncode:
        raise SystemExit(done.returncode if done.returncode > 0 else 128 - done.returncode)
    return done.stdout.splitlines()[-1]
