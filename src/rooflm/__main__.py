"""`python -m rooflm` and the `rooflm` script: the command line, whose import may be interrupted too."""

import sys


def run() -> None:
    """Entry point of the `rooflm` script. Python 3.11 wraps what interrupts a class as it is made in a RuntimeError."""
    try:
        from rooflm.cli.app import run as command

        command()
    except (KeyboardInterrupt, RuntimeError) as stopped:
        if not isinstance(stopped.__cause__ or stopped, KeyboardInterrupt):
            raise
        sys.stderr.write("rooflm: interrupted\n")
        raise SystemExit(130) from None


if __name__ == "__main__":
    run()
