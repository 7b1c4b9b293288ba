"""Switches for one holder alone, with hosts, each in a network namespace of its own."""
