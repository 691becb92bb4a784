"""Chromium, for tests that look at a page; without it they are skipped, but fail under CI."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any, Final

import pytest

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")  # not longer: while it is open, no other test of the process may use asyncio
def chromium() -> Iterator[Any]:
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if not os.environ.get("CI"):
        pytest.importorskip("playwright", reason="needs Playwright: pip install playwright")
        pytest.importorskip(
            "axe_playwright_python", reason="needs axe-core: pip install axe-playwright-python"
        )
        if path is None:
            pytest.skip(f"needs a browser: one of {', '.join(_NAMES)}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Without a path, Playwright says what it misses.
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()
