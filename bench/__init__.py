"""Measurements, one question a script; each prints JSON on its last line (docs/bench.md)."""
