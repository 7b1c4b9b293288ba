"""Commands that run as a user of their own."""

from collections.abc import Sequence

SETPRIV = "/usr/bin/setpriv"


def as_user(uid: int, groups: Sequence[int], argv: Sequence[str]) -> list[str]:
    """Return a command that runs another one as a user without a capability, and without a way to any."""
    extra = ["--groups", ",".join(map(str, groups))] if groups else ["--clear-groups"]
    return [
        *(SETPRIV, "--reuid", str(uid), "--regid", str(uid), *extra, "--no-new-privs"),
        *("--bounding-set", "-all", "--inh-caps", "-all", "--ambient-caps", "-all", "--", *argv),
    ]
