"""Read-only questions: what is there, how a packet goes, whether it is what was learned."""
