"""Netlink with the guest's kernel: the codec of its messages, and the sockets."""
