"""Guests in virtual machines: QEMU, and what the host says to the machine inside."""
