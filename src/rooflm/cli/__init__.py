"""The command line: parse, call one public function, format. No physics here."""

from rooflm.cli.app import main

__all__ = ["main"]
