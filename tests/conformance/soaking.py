"""Random tables and packets, and groups of many weights, through every plane; the last line says what came of it."""

import argparse
import asyncio
import logging
import shutil
import time

from differences import first_difference
from ecmp import FLOWS, WEIGHTS, shares_off
from marks import MISSING
from planes_wired import PLANES

from lab.planes.bmv2 import PROGRAM


async def soak(kind: str, tables: int, packets: int, first_seed: int) -> int:
    """Try tables and weights on one plane and return how many showed a difference."""
    found, began = 0, time.monotonic()
    async with PLANES[kind]() as wired:
        await wired.start()
        for number in range(tables):
            text = await first_difference(wired, first_seed + number, packets)
            if text is not None:
                found += 1
                print(text)
            if (number + 1) % 10 == 0 or number + 1 == tables:
                took = time.monotonic() - began
                print(f"{kind}: {number + 1} tables, {(number + 1) * packets} packets, {found} differ, {took:.0f} s")
        for weights in WEIGHTS:
            off = await shares_off(wired, weights)
            found += bool(off)
            print(*off or [f"{kind}: weights {weights}: {FLOWS} flows, every member has its share"], sep="\n")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--packets", type=int, default=50, help="by table")
    parser.add_argument("--seed", type=int, default=1000, help="of the first table")
    parser.add_argument("--plane", action="append", choices=PLANES, help="all that are installed, unless named")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    found = 0
    for kind in arguments.plane or PLANES:
        if kind.startswith("bmv2") and shutil.which(PROGRAM) is None:
            print(f"{kind} is left out: {MISSING}")
            continue
        found += asyncio.run(soak(kind, arguments.tables, arguments.packets, arguments.seed))
    print(f"{found} differ" if found else "no difference")
    return int(found > 0)


if __name__ == "__main__":
    raise SystemExit(main())
