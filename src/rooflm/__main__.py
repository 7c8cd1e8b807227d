"""`python -m rooflm` is the `rooflm` command."""

from rooflm.cli.app import run

if __name__ == "__main__":
    run()
