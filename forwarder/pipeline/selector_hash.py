"""Writes the tables of nexthop_group.h: what each octet of the selector fields contributes to their CRC-32.

selector_hash.py OUTPUT
"""

import sys
import zlib
from pathlib import Path

_OCTETS = 37  # ip_source, ip_destination, protocol, l4_source, l4_destination


def table() -> list[list[int]]:
    """Return, by place and octet, how the CRC differs from that of all zeros."""
    zeros = zlib.crc32(bytes(_OCTETS))
    return [
        [zlib.crc32(bytes(place) + bytes((octet,)) + bytes(_OCTETS - place - 1)) ^ zeros for octet in range(256)]
        for place in range(_OCTETS)
    ]


def main() -> None:
    """Write C."""
    rows = ("    {" + ", ".join(f"0x{word:08x}" for word in row) + "},\n" for row in table())
    text = f"#define SP_SELECTOR_HASH_ZEROS 0x{zlib.crc32(bytes(_OCTETS)):08x}u\n"
    text += f"static const sp_u32 sp_selector_hash[{_OCTETS}][256] = {{\n{''.join(rows)}}};\n"
    Path(sys.argv[1]).write_text(text)


if __name__ == "__main__":
    main()
