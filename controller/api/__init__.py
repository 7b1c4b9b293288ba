"""The operator API: HTTP on a Unix socket."""
