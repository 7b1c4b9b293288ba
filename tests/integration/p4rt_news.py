"""A program: what a plane `edge` tells first of the device at an address, with TLS where three files are given.

    python p4rt_news.py ADDRESS [CA CERT KEY]

It runs where the test wants it, as in another network namespace, and says `connected`, or why not.
"""

import asyncio
import sys
from pathlib import Path

from openflow_net import Recorder

from controller.model import PlaneConfig, PlaneKind
from controller.planes.p4runtime.channel import Timing, TlsFiles
from controller.planes.p4runtime.plane import P4RuntimePlane

_LIMIT_S = 60


async def news(address: str, tls: TlsFiles | None) -> str:
    """Connect once."""
    config = PlaneConfig("edge", PlaneKind.P4RUNTIME, address=address, device_id=1)
    plane, heard = P4RuntimePlane(config, tls, timing=Timing(retry_s=0.02)), Recorder()
    await plane.start(heard)
    try:
        async with asyncio.timeout(_LIMIT_S):
            await heard.until(lambda: heard.connects or heard.disconnects)
    finally:
        await plane.close()
    return "connected" if heard.connects else heard.disconnects[0]


if __name__ == "__main__":
    print(asyncio.run(news(sys.argv[1], TlsFiles(*map(Path, sys.argv[2:])) if sys.argv[2:] else None)))
