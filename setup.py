"""The parts of Splitplane that are C; everything else about the installation is in setup.cfg."""

from setuptools import Extension, setup

FLAGS = ["-std=c11", "-Wall", "-Wextra"]

setup(
    ext_modules=[
        Extension("wire._columns", ["wire/_columns.c"], extra_compile_args=FLAGS),
        Extension("vrc._routes", ["vrc/_routes.c"], depends=["wire/_runs.h"], extra_compile_args=FLAGS),
        Extension("controller._routes", ["controller/_routes.c"], depends=["wire/_runs.h"], extra_compile_args=FLAGS),
        Extension(
            "controller.placement._aggregate",
            ["controller/placement/_aggregate.c"],
            depends=[f"controller/placement/_labels{part}.h" for part in ("", "_entries", "_sets", "_trie")],
            extra_compile_args=FLAGS,
        ),
    ]
)
