"""The first words on a guest's control socket; small, as `vrctl exec` starts with it.

A machine's socket is QEMU's, and its channel outlives whoever spoke on it last. The guest learns late that one client
has gone and the next one is there, and what it says in between is lost; so a harmless request is repeated until it is
answered, and what matters is sent then.
"""

SOCKET = "control.sock"
LIMIT_S = 10.0
"""How long a guest may take for an ordinary answer."""
SETTLE_S = 0.5
"""After so long without an answer the first words are repeated."""


def hello(wanted: str) -> bytes:
    """Return the request that changes nothing, by the id of its answer; a blank line ends what was left half sent."""
    return f'\n{{"op": "machine", "id": "{wanted}"}}\n'.encode()
