"""The daemons of a guest: how they are started, watched and reloaded."""
