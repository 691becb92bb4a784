"""Draw the pictures of the live page and the report: ``python -m tests.monitor.screenshot docs/figures``."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import sync_playwright

from streamcal.cli.demo import FILES
from streamcal.monitor.build import build_status
from streamcal.monitor.health import Health
from streamcal.monitor.latest_status import LatestStatus
from streamcal.monitor.report import as_html, make_report
from streamcal.monitor.run_history import RunHistory
from streamcal.monitor.server import PageServer
from streamcal.run.config import RunConfig
from streamcal.run.connectors import Connectors
from streamcal.run.outputs import NullSink, Outputs
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, Runner
from tests.command_line import FLIGHTS

_DRAWN: Final = "() => document.querySelectorAll('figure canvas').length > 5"


def main(folder: Path) -> None:
    files = [str(FLIGHTS / name) for name in FILES]
    connectors, pipeline, history = Connectors(), Pipeline(), RunHistory()
    calibration = connectors.source(files[0], SourceOptions(domain="source"))
    inputs = Inputs([calibration], [connectors.source(name) for name in files[1:]])
    options = RunConfig().shown()
    server, latest = PageServer("127.0.0.1", 0), LatestStatus(pipeline, options, inputs.sources)
    server.show(latest, Health([], time.monotonic))

    def after(outcome: Outcome, seconds: float) -> None:  # the signature of an `after`
        history.take(outcome)
        latest.take(outcome)

    Runner(pipeline, inputs, Outputs(NullSink()), None, clock=time.monotonic, after=after).run()
    latest.end()
    status = build_status(pipeline, inputs.sources, history=history, options=options)
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        report = Path(made) / "report.html"
        report.write_text(as_html(make_report(status, ["the flights from New York in 2013"])))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        for name, url in (("page", server.url), ("report", report.as_uri())):
            _shoot(browser, url, folder / f"{name}.png")
            _shoot(browser, url, folder / f"{name}-narrow.png", narrow=True)
        browser.close()
    server.close()


def _shoot(browser: Any, url: str, path: Path, *, narrow: bool = False) -> None:
    """Save what a window shows: of a screen in a light room, or of a telephone in a dark one."""
    page = browser.new_page(
        viewport={"width": 390, "height": 844} if narrow else {"width": 1280, "height": 1000},
        color_scheme="dark" if narrow else "light",
    )
    page.goto(url)
    page.wait_for_function(_DRAWN)
    page.screenshot(path=path)
    page.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
