"""The OpenFlow 1.3 back end: a switch whose flow tables are the pipeline of the contract."""
