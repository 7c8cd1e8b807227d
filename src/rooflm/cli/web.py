"""`rooflm web`: the page in a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from rooflm.errors import RooflmError


def web(
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 lets others in.")] = "127.0.0.1",
    port: Annotated[str, typer.Option(metavar="N", help="Port to listen at.")] = "8018",
    browser: Annotated[bool, typer.Option(help="Open it in the browser.")] = True,
) -> None:
    """Open the page: fits, speed, serve, search, train, compare and map in a browser, without the internet."""
    try:
        from rooflm.web.server import run
    except ImportError as error:
        if (error.name or "").startswith("rooflm"):
            raise
        raise RooflmError(f"the page needs {error.name}: pip install 'rooflm[web]'") from None
    if not (port.isdecimal() and 1 <= int(port) <= 65535):
        raise RooflmError(f"port is {port}, but it must be 1 to 65535")
    run(host, int(port), browser)
