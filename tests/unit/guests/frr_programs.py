"""FRR's daemons of a supervisor, without FRR: its programs are scripts."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from test_machine_control import run_until

from vrc.guest.children import Children
from vrc.guest.suites import frr
from vrc.guest.suites.frr_jobs import FrrJobs

SECTION = {"text": "!\n", "daemons": ["zebra"], "hold_time_s": 30, "fpm": False, "start_limit_s": 0.05}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="jobs become another user, which needs root")


class Programs:
    """FRR's programs as scripts, which are told what would have been run."""

    def __init__(self, folder: Path, family: Children, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.replies = folder, list[str]()
        self.sockets = folder / "sockets"
        for name in ("bin", "etc", "sockets"):
            (folder / name).mkdir()
        monkeypatch.setattr(frr, "BINARIES", str(folder / "bin"))
        monkeypatch.setattr(frr, "SOCKETS", str(self.sockets))
        monkeypatch.setattr(frr, "_OWN_DIRECTORIES", ())
        monkeypatch.setattr(frr, "FRR_STATE", str(folder / "none"))
        monkeypatch.setattr(frr, "LOAD_AGAIN_S", 0.0)
        monkeypatch.setattr(frr, "watch_directory", lambda _: os.eventfd(0, os.EFD_NONBLOCK))
        monkeypatch.setattr(FrrJobs, "_next", self._unprivileged(FrrJobs._next))
        self.family = family
        self.suite = frr.FrrDaemons(family, {**SECTION, "ids": [os.getuid(), os.getgid(), 0]}, str(folder / "etc"))
        self.limit(600)
        zebra = self.suite._daemons["zebra"]
        zebra.ready = True
        self.suite._spawn = lambda daemon: None  # type: ignore[method-assign]

    def _unprivileged(self, next_job: Callable[[FrrJobs], None]) -> Callable[[FrrJobs], None]:
        def change(jobs: FrrJobs) -> None:
            jobs._waiting = [
                (name, argv if argv[0] == (script := str(self.folder / name)) else [script, *argv], done)
                for name, argv, done in jobs._waiting
            ]
            next_job(jobs)

        return change

    def limit(self, seconds: float) -> None:
        """What follows may take so long: next to nothing where it hangs, and for ever where it does not."""
        self.suite.settings = replace(self.suite.settings, job_limit_s=seconds)

    def write(self, name: str, script: str) -> None:
        # A new file under the name: what is about to run the old one would fail on one that is being written.
        new = self.folder / f"{name}.new"
        new.write_text(f"#!/bin/sh\n{script}\n")
        new.chmod(0o755)
        new.replace(self.folder / name)

    def until(self, condition: Callable[[], bool]) -> None:
        run_until(self.family.reactor, condition)
