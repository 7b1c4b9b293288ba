"""The lab: the one place that starts switches, network namespaces, routing neighbors and generators of traffic.

Topologies, tests and benchmarks are made of its parts. It alone imports Mininet.
"""
