"""Draw the picture of docs/page.md: ``python -m tests.page.screenshot docs/figures/page.png``."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.page.flights import LiveFlights


def main(path: str) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        LiveFlights(Path(folder), at_once=200_000, calibration=60_000) as run,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        page = browser.new_page(viewport={"width": 1600, "height": 1460})
        page.goto(run.url)
        page.wait_for_function(
            "() => document.querySelector('#ece .chart').plot?.data[0].at(-1) > Date.UTC(2013, 8) / 1000",
            timeout=600_000,
        )
        page.screenshot(path=path)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
