"""What hostile routers, hosts, guests, switches, clients do in bench/hostile, one attack at a time.

messages   what a router says on its session      floods       what a host sends to its router
session    the session, and other uses of the     guest_root   what root of a guest does in it
           router's certificate                   clients      what whoever reaches a socket does there
"""
