"""The YAML of vrctl apply: schema, loader and the runtime model made from it."""
