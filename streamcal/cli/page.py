"""``streamcal run --page``: the live page beside a run."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

from streamcal.cli.terminal import EXIT_USAGE, fail
from streamcal.monitor.endpoint import parse_address

if TYPE_CHECKING:
    from streamcal.page.server import PageServer

__all__ = ["serve_page"]

log = logging.getLogger("streamcal")


def serve_page(address: str, stack: ExitStack) -> PageServer:
    """Listen at ``[HOST:]PORT`` for viewers of a page, until the stack is unwound."""
    try:
        from streamcal.page.server import PageServer
    except ImportError:
        fail("--page needs starlette and uvicorn: pip install '.[serve]' in a checkout", EXIT_USAGE)
    try:
        server = PageServer(*parse_address(address))
    except (OSError, ValueError) as error:
        fail(f"cannot show a page at {address!r}: {error}", EXIT_USAGE)
    stack.callback(server.close)
    log.info("page at %s", server.url)
    return server
