"""Planes with a fallback: two planes as one, and which routes are in hardware."""
