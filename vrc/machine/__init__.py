"""The first process of a virtual machine, and what it does for the host."""
