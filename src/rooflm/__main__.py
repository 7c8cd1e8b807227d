"""`python -m rooflm` and the `rooflm` script: the command line, whose import may be interrupted too."""

import sys


def run() -> None:
    """Entry point of the `rooflm` script."""
    try:
        from rooflm.cli.app import run as command

        command()
    except KeyboardInterrupt:
        sys.stderr.write("rooflm: interrupted\n")
        raise SystemExit(130) from None


if __name__ == "__main__":
    run()
