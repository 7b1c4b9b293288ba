"""The planes: a port (base) and its back ends, which do not know each other."""
