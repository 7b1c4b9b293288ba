"""The part of a guest's first process that makes interfaces, alone: run in a network namespace.

python interfaces_program.py < lines of JSON, each the interfaces of guest.json; "made" for each on stdout
"""

import json
import os
import sys

from vrc.guest.enclosure import write_sysctls
from vrc.guest.interfaces import GuestInterface, GuestInterfaces
from vrc.guest.reactor import Reactor


def main() -> None:
    reactor = Reactor()
    interfaces = GuestInterfaces(reactor, [], lambda line: print(line, file=sys.stderr, flush=True))
    received = b""

    def receive() -> None:
        nonlocal received
        if not (data := os.read(0, 65536)):
            reactor.stop()
            return
        *lines, received = (received + data).split(b"\n")
        for line in lines:
            interfaces.change(map(GuestInterface.parse, json.loads(line)))
            print("made", flush=True)

    write_sysctls()
    reactor.add_reader(0, receive)
    reactor.run()
    interfaces.close()


if __name__ == "__main__":
    main()
