"""The P4Runtime back end: a device that runs the pipeline of p4src."""
