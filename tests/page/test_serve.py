"""`streamcal serve` shows the page at ``/``, and a viewer does not keep it from stopping."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

import msgspec
import pytest

from streamcal.page.board import Live
from tests.serve.servers import Served

pytestmark = pytest.mark.slow


def test_serve_shows_the_page_and_stops_with_viewers(tmp_path: Path) -> None:
    served = Served(tmp_path / "store.db")
    assert served.predict(id="a", score=0.25)[0] == 200
    url = f"http://127.0.0.1:{served.port}"
    with urllib.request.urlopen(f"{url}/") as page:
        assert b"page/page.js" in page.read()
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    with urllib.request.urlopen(f"{url}/page/events") as events:
        for line in events:
            if not line.startswith(b"data: "):
                continue
            live = msgspec.json.decode(line.removeprefix(b"data: "), type=Live)
            if live.status.join.predictions == 1:
                break
        start = time.monotonic()
        assert served.stop()[0] == 0
        assert time.monotonic() - start < 25.0  # uvicorn waits for 30 s where a request does not end
