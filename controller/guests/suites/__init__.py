"""The daemons of a guest: how their text is composed and checked."""
