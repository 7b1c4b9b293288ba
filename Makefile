# Every target does its own set-up first; see scripts/setup.
SHELL := /bin/bash
PY := .venv/bin/python
# Byte code is kept: without, all files of tests are compiled anew by each worker, and ours at each start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup check test clangs demo guest p4 clean

setup:
	@scripts/setup

check:
	@scripts/setup python
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-cache
	@$(PY) -m pytest -q -n 2 --hypothesis-profile=quick -m "not root" tests/unit tests/property tests/contract

# In the units and the order of tests/conftest.py. Six at a time: most of them wait for daemons rather than compute.
# TESTS names some of them, and then only what these need is set up.
test:
	@scripts/setup tests $(TESTS)
	@$(PY) -m pytest -n 6 --dist loadfile --no-loadscope-reorder $(if $(TESTS),$(TESTS),tests)

# The XDP program by each clang that Debian has, on each kernel there is here.
clangs:
	@scripts/clangs

guest:
	@scripts/setup guest

demo: $(if $(filter kvm,$(GUEST)),guest,setup)
	@topologies/demo $(if $(PLANE),--plane $(PLANE)) $(if $(GUEST),--guest $(GUEST))

# Needs p4c on PATH; what it makes is committed.
p4:
	@scripts/p4

clean:
	@rm -rf .venv .setup build wire/splitplane_pb2*
