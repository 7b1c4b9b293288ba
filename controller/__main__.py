"""Where vr-controller starts, also after a restore.

Modules are never freed, and looking for garbage in them again and again took half of the time of a start.
"""

import gc


def main() -> None:
    """Import the daemon without garbage collection, leave it out of all that follow, and run it."""
    gc.disable()
    from controller.daemon import main as run

    gc.freeze()
    gc.enable()
    run()


if __name__ == "__main__":
    main()
