"""Samples of what a device routes: the pipeline's digest of that name, which belongs to the plane and to no router.

    packets routed ── one of so many ──► sample_t ── 256, or what there is after 100 ms ──► DigestList

A list costs little more than a packet-in, whatever it holds. No list is acknowledged: without a time to wait for that
a device remembers nothing of what it has told (P4Runtime 1.4, section 9.8), and a popular destination comes again and
again. A device that refuses the digest, or knows none, is not asked for more.
"""

import grpc
from finsy.proto import p4r

from controller.planes.base import Op, Sample
from controller.planes.p4runtime.channel import Channel, ChannelClosed, RequestRefused, decoded
from controller.planes.p4runtime.messages import entities_of, request_head, update_of
from controller.planes.p4runtime.p4info import Schema

MAX_LIST = 256
"""Samples in a list: 12 KiB at most."""

MAX_WAIT_NS = 100_000_000
"""How long a sample waits for others: less than a round of rebalancing, so that none is much older than that."""

_MEMBERS = (("router_interface_id", 32), ("ip_version", 8), ("dst", 128), ("timestamp", 48))
_INTERFACE_OCTETS = 4
_KEY_OF_VERSION = {b"\x04": (4, b"\x20"), b"\x06": (16, b"\x80")}  # octets of an address, and what a key adds


class SampleDigest:
    """The digest of a pipeline; ValueError where it has none, or one of other members."""

    def __init__(self, schema: Schema) -> None:
        digest = schema.digest("sample")
        if digest.members != _MEMBERS:
            raise ValueError(f"the pipeline's digest sample has other members: {digest.members}")
        self.id = digest.id

    @property
    def entry(self) -> p4r.DigestEntry:
        """What a device is told that has to take samples."""
        config = p4r.DigestEntry.Config(max_timeout_ns=MAX_WAIT_NS, max_list_size=MAX_LIST, ack_timeout_ns=0)
        return p4r.DigestEntry(digest_id=self.id, config=config)

    def decode(self, digests: p4r.DigestList) -> list[Sample]:
        """Return the samples of a list, without what is none; never raises.

        The loop is for 10,000 a second: numbers are in canonical form, so nothing but their lengths is looked at.
        """
        samples: list[Sample] = []
        if digests.digest_id != self.id:
            return samples
        for one in digests.data:
            members = [member.bitstring for member in one.struct.members]
            if len(members) != len(_MEMBERS):
                continue
            interface, version, dst, _ = members
            octets, length = _KEY_OF_VERSION.get(version, (0, b""))
            if 0 < len(interface) <= _INTERFACE_OCTETS and 0 < len(dst) <= octets:
                samples.append((int.from_bytes(interface, "big"), dst.rjust(octets, b"\0") + length))
        return samples


async def keep_samples(channel: Channel, digest: SampleDigest, wanted: bool) -> str:
    """Have the device take samples, or none; returns why it does not, in one line, or nothing.

    ChannelClosed where the device answers a read with something else.
    """
    try:
        found = await _read(channel, digest)
    except RequestRefused as refused:
        if refused.code is not grpc.StatusCode.NOT_FOUND:
            return str(refused)
        found = None  # so BMv2 says that there is none
    if not wanted:
        return "" if found is None else await _write(channel, Op.DELETE, p4r.DigestEntry(digest_id=digest.id))
    if found == digest.entry:
        return ""
    return await _write(channel, Op.INSERT if found is None else Op.MODIFY, digest.entry)


async def _read(channel: Channel, digest: SampleDigest) -> p4r.DigestEntry | None:
    """Return the entry as the device has it, None where there is none."""
    found = None
    async for response in channel.read([p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=digest.id))]):
        for octets in entities_of(response):
            entry = decoded(p4r.Entity, octets).digest_entry
            if entry.digest_id != digest.id:
                raise ChannelClosed("the device answered a read of a digest with something else")
            found = entry
    return found


async def _write(channel: Channel, op: Op, entry: p4r.DigestEntry) -> str:
    head = request_head(channel.target.device_id, channel.election_id)
    problems = await channel.write(head + update_of(op, p4r.Entity(digest_entry=entry)), 1)
    return problems[0].text if problems else ""
