"""Words of an outsider, made fit to be shown."""

MAX_WORDS = 300
"""Most characters shown of what a guest says at once."""


def printable(text: str, limit: int = MAX_WORDS) -> str:
    """Return at most ``limit`` characters of a text, each that a terminal could take for a command as "?"."""
    return "".join(c if c.isprintable() else "?" for c in text[:limit])
