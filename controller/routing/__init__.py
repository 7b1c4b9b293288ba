"""One router's tables, from what its daemons learned to what its plane should hold; pure."""
