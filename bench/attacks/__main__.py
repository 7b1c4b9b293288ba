"""One attack of a hostile router, switch or client; a program of its own.

python -m bench.attacks NAME FILE SECONDS: the file is `Target`'s. Prints one JSON object: what became of it. The time
begins once what the attack needs to be there is there.

All run at nice 19, in a session of their own, so that others wait for what they make the controller and the switch
do, and not for the CPU that they take themselves.
"""

import json
import sys
import time
from pathlib import Path

from bench.attacks.clients import OF_CLIENTS
from bench.attacks.messages import BEFORE, OF_ROUTERS
from bench.attacks.session import OF_CERTIFICATE, HostileRouter
from bench.attacks.target import Target
from lab.processes import give_way


def main() -> None:
    """Do one of them for so long."""
    name, file, seconds = sys.argv[1:4]
    give_way()
    target, lasts_s = Target.read(Path(file)), float(seconds)
    if name in OF_CLIENTS:
        seen = OF_CLIENTS[name](target, time.monotonic() + lasts_s)
    elif name in OF_CERTIFICATE:
        seen = OF_CERTIFICATE[name](HostileRouter(target, lasts_s))
    else:
        seen = HostileRouter(target, lasts_s).run((OF_ROUTERS | BEFORE)[name])
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()
