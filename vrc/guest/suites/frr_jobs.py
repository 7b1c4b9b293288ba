"""How FRR's daemons get a text: one vtysh or frr-reload.py at a time, as a user without privileges.

mgmtd forgets a commit that is under way when any vtysh ends, such as an operator's, and says that all went well (FRR
issue 18541). So where it keeps a part of the text, it is asked afterwards what it has.
"""

from collections.abc import Callable, Sequence

from vrc.guest.children import Child, Children, describe_end
from vrc.guest.suites.base import ENVIRONMENT

BINARIES = "/usr/lib/frr"
CONFIGURATION = "/etc/frr"
SOCKETS = "/var/run/frr"

_ROUNDS = 3
"""So often a text is given to the daemons until they have it."""
_COMMIT_S = 1
"""So long mgmtd is let alone with a text that it has not committed once: the next look would end that too."""

Done = Callable[[Child, int], None]
"""Told a job and its exit status."""


class FrrJobs:
    """The jobs of one guest's FRR, one after the other."""

    def __init__(
        self,
        children: Children,
        ids: tuple[int, int, int],
        limit_s: Callable[[], float],
        ended: Callable[[], bool],
    ) -> None:
        """``ids`` are the user, its group, and that of the daemons' sockets; ``limit_s`` says how long the next job
        may take. ``ended`` hears of each that has ended, and tells whether what came of it still counts.
        """
        self._children, self._limit_s, self._ended = children, limit_s, ended
        uid, gid, vty_gid = ids
        user = ["--reuid", str(uid), "--regid", str(gid), "--groups", str(vty_gid)]
        self._as_user = ["/usr/bin/setpriv", *user, "--bounding-set", "-all", "--inh-caps", "-all"]
        self._job: Child | None = None
        self._waiting: list[tuple[str, list[str], Done]] = []

    @property
    def running(self) -> bool:
        """Tell whether one has a process."""
        return self._job is not None

    @property
    def busy(self) -> bool:
        """Tell whether one runs or waits."""
        return self._job is not None or bool(self._waiting)

    def load(self, daemon: str, done: Done, looks: bool) -> None:
        """Give a daemon its part of the text, or with "" all of them theirs; ``looks`` whether they have it then."""
        self._give("vtysh", ["/usr/bin/vtysh", "-b", *(("-d", daemon) if daemon else ())], done, looks)

    def reload(self, done: Done, looks: bool) -> None:
        """Change what the daemons have into the text; ``looks`` whether they have it then."""
        self._give("frr-reload", _RELOAD, done, looks)

    def configure(self, line: str, done: Done) -> None:
        """Give the daemons a line of configuration."""
        self._submit("vtysh", ["/usr/bin/vtysh", "-c", "configure terminal", "-c", line], done)

    def clear(self) -> None:
        """Forget those that wait, and kill the one that runs: its end is told."""
        self._waiting.clear()
        if self._job:
            self._job.kill_all()

    def _give(
        self, name: str, argv: list[str], done: Done, looks: bool, left: Sequence[str] = (), rounds: int = 1
    ) -> None:
        """Have daemons take the text, once more where lines are missing that were not ``left`` the last time.

        That puts right what mgmtd forgot. Lines that are left then FRR shows otherwise, or are of a daemon that is
        not there.
        """

        def given(job: Child, status: int) -> None:
            if status or not looks:
                done(job, status)
            elif rounds > 1:
                self._submit("sleep", ["/bin/sleep", str(_COMMIT_S)], lambda _pause, _status: look_for(job))
            else:
                look_for(job)

        def look_for(job: Child) -> None:
            self._submit("frr-reload", _DIFFERENCE, lambda look, _status: looked(job, look))

        def looked(job: Child, look: Child) -> None:
            if not look.lines or look.overran:
                done(job, 0)
                return
            again = look.lines != left and rounds < _ROUNDS
            remark = "they are given it again" if again else "it stays so"
            self._children.log.write("vr-guest", f"not in the daemons as in the text: {look.lines[-1]}; {remark}")
            if again:
                self._give(name, argv, done, looks, look.lines, rounds + 1)
            else:
                done(job, 0)

        self._submit(name, argv, given)

    def _submit(self, name: str, argv: list[str], done: Done) -> None:
        self._waiting.append((name, argv, done))
        self._next()

    def _next(self) -> None:
        if self._job or not self._waiting:
            return
        name, argv, done = self._waiting.pop(0)
        job = Child(name, self._as_user + argv, ENVIRONMENT, lambda job, status: self._job_done(job, status, done))
        job.lines, job.limit_s = [], self._limit_s()
        self._job = job
        try:
            self._children.spawn(job)
        except OSError as error:
            job.lines = [f"% {name}: {error.strerror}"]
            self._job_done(job, 127, done)

    def _job_done(self, job: Child, exit_status: int, done: Done) -> None:
        self._job = None
        if exit_status < 0 and not job.overran:  # as by a kernel that is out of memory: who knows how far it came
            job.overran = f"{job.name} was {describe_end(exit_status, '')}"
        if self._ended():
            done(job, exit_status)
            self._next()


def _frr_reload(action: str) -> list[str]:
    return [
        *("/usr/bin/python3", f"{BINARIES}/frr-reload.py", action, "--stdout", "--log-level", "error"),
        *("--bindir", "/usr/bin", "--confdir", CONFIGURATION, "--rundir", SOCKETS, f"{CONFIGURATION}/frr.conf"),
    ]


_RELOAD = _frr_reload("--reload")
_DIFFERENCE = _frr_reload("--test")
"""It says the lines that a reload would take away and add, and nothing where there are none."""
