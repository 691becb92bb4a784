"""`streamcal serve` shows the page at ``/``, and a viewer does not keep it from stopping."""

from __future__ import annotations

import base64
import time
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamcal.monitor.latest_status import Live
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
        assert time.monotonic() - start < 25.0  # else one of its viewers holds it up


def test_with_a_token_a_browser_asks_for_it_and_can_only_read(chromium: Any, tmp_path: Path) -> None:
    token = "0123456789abcdef"
    (tmp_path / "token").write_text(token)
    served = Served(tmp_path / "store.db", "--token-file", tmp_path / "token")
    basic = {"authorization": f"Basic {base64.b64encode(f'me:{token}'.encode()).decode()}"}
    assert served.ask("GET", "/page/state")[0] == 401
    assert served.ask("GET", "/page/state", headers=basic)[0] == 200
    assert served.ask("POST", "/v1/labels", {"id": "a", "label": 1}, headers=basic)[0] == 401
    for wrong in ("Basic", "Basic !", f"Basic {base64.b64encode(token.encode()).decode()}"):
        assert served.ask("GET", "/page/state", headers={"authorization": wrong})[0] == 401
    context = chromium.new_context(http_credentials={"username": "me", "password": token})
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{served.port}/")
    page.wait_for_selector("#state[data-state=running]")
    context.close()
    assert served.stop()[0] == 0
