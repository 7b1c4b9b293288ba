"""The parts of Splitplane that are C; everything else about the installation is in setup.cfg."""

from setuptools import Extension, setup

FLAGS = ["-std=c11", "-Wall", "-Wextra"]

setup(
    ext_modules=[
        Extension("wire._columns", ["wire/_columns.c"], extra_compile_args=FLAGS),
        Extension("vrc.netlink._loops", ["vrc/netlink/_loops.c"], depends=["wire/_runs.h"], extra_compile_args=FLAGS),
        Extension(
            "controller.routing._routes",
            ["controller/routing/_routes.c"],
            depends=["wire/_runs.h"],
            extra_compile_args=FLAGS,
        ),
        Extension(
            "controller.route_cache._aggregate",
            ["controller/route_cache/_aggregate.c"],
            depends=[f"controller/route_cache/_labels{part}.h" for part in ("", "_entries", "_sets", "_trie")],
            extra_compile_args=FLAGS,
        ),
    ]
)
