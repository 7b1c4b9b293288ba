"""The table of cases: every file has those of one part of the pipeline."""

from cases import admit, classifier, egress, fallback, forwarding, malformed, nexthops, punts, routes, ttl

CASES = [
    case
    for part in (classifier, admit, malformed, punts, routes, ttl, nexthops, egress, fallback, forwarding)
    for case in part.CASES
]
