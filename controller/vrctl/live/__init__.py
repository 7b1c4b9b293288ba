"""What `vrctl` shows while it happens."""
