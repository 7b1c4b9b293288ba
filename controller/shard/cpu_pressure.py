"""Whether more wants the machine's cores than they serve, as the kernel tells (Documentation/accounting/psi.rst)."""

from pathlib import Path

PRESSURE = Path("/proc/pressure/cpu")
LOOK_S = 0.1
"""How often the kernel is asked at most: it adds up over all cores then."""

CROWDED = 0.4
"""The cores are crowded when something has waited for one for this part of the time."""


class CpuPressure:
    """The pressure on the machine's cores; none where the kernel does not tell."""

    def __init__(self, path: Path = PRESSURE) -> None:
        self._path = path
        self._looked_s, self._waited_s = 0.0, self._read()
        self._crowded = False

    def crowded(self, now_s: float) -> bool:
        """Tell whether the cores are crowded, at a moment of a clock that never stands still."""
        past_s = now_s - self._looked_s
        if past_s >= LOOK_S:
            before_s, self._waited_s = self._waited_s, self._read()
            self._crowded = self._waited_s - before_s > CROWDED * past_s
            self._looked_s = now_s
        return self._crowded

    def _read(self) -> float:
        """Return for how many seconds since boot something has waited for a core; 0 where that is not told."""
        try:
            told = self._path.read_text()
        except OSError:  # a kernel without CONFIG_PSI
            return 0.0
        first = told.partition("\n")[0]  # some avg10=… avg60=… avg300=… total=MICROSECONDS
        return int(first.rpartition("total=")[2]) / 1e6
