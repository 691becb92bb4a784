"""The picture and the table of docs/operations.md: ``python docs/figures/operations.py``.

The flights stream goes through ``streamcal run`` with a store. What is drawn are the certificates of the rows
of ``--maps``, for a store keeps few of the older versions, and how long labels waited. The rest is what
``streamcal show`` says as JSON.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from drawing import BLUE, GREY, VERMILION, canvas, markdown, months, publish, scientific
from flights import HOUR, joined
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from streamcal.certificates.record import NO_CLAIM
from streamcal.cli.demo import write_files

FILES: Final = ("source", "predictions", "labels")
SHARES: Final = (0.5, 0.9, 0.99, 1.0)
DAY: Final = 86_400.0

Values = npt.NDArray[np.float64]


def streamcal(*arguments: str) -> bytes:
    """Call the command line; return what it printed."""
    code = "from streamcal.cli.app import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout  # noqa: S603  # made here


def run(folder: Path, predictions: int | None = None) -> dict[str, Any]:
    """Run the flights, or the first of them, with a store; return what ``streamcal show`` reports."""
    write_files(folder)
    for name in FILES:
        with gzip.open(folder / f"{name}.jsonl.gz") as whole:
            (folder / f"{name}.jsonl").write_bytes(b"".join(islice(whole, predictions)))
    source, events, labels = (str(folder / f"{name}.jsonl") for name in FILES)
    store = str(folder / "streamcal.db")
    streamcal(
        *("run", "--calibration", source, "--events", events, "--labels", labels),
        *("--output", str(folder / "recalibrated.jsonl"), "--rejects", str(folder / "rejects.jsonl")),
        *("--maps", str(folder / "maps.jsonl"), "--store", store),
    )
    found: dict[str, Any] = msgspec.json.decode(streamcal("show", store, "--json"))
    return found


def published(folder: Path) -> list[dict[str, Any]]:
    """Return every map version that `run` published."""
    with (folder / "maps.jsonl").open() as rows:
        return [msgspec.json.decode(row) for row in rows]


def delays() -> Values:
    """Return how long each label came after its prediction, float64[n], in hours, ascending."""
    _, _, predicted, labelled = joined("JFK")
    return np.sort((labelled - predicted) / HOUR)


def days_of(maps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the last certified version of every day (UTC)."""
    rows = [row for row in maps if row["time"] is not None and row["certificate"]]
    return list({row["time"] // DAY: row for row in rows}.values())


def refutation(maps: list[dict[str, Any]]) -> str:
    """Return what is refuted in the newest version, since when anything is, and in how many versions."""
    refuted = [row for row in maps if row["time"] is not None and row["certificate"]]
    refuted = [row for row in refuted if row["certificate"]["refuted"]]
    if not refuted:
        return "nothing"
    when = datetime.fromtimestamp(refuted[0]["time"], UTC)
    (what, *_) = refuted[-1]["certificate"]["refuted"]
    return f"{what.partition(':')[0]}, since {when:%d %B}, in {len(refuted):,} versions"


def claimed(bound: float) -> str:
    """Return a bound as text; a bound of ¼ or more claims nothing."""
    return scientific(bound) if bound < NO_CLAIM else "no claim"


def tables(shown: dict[str, Any], maps: list[dict[str, Any]], waited: Values) -> dict[str, str]:
    """Return the table of the page."""
    served, join = shown["engines"][0], shown["join"]
    newest = next(row["certificate"] for row in reversed(maps) if row["certificate"] is not None)
    rows = [
        ("map versions", f"{served['version']:,}, of which the store keeps {len(shown['versions']):,}"),
        ("prior of source and target", f"{served['source_prior']:.3f}, {served['target_prior']:.3f}"),
        ("certified risk of the newest one with a certificate", claimed(newest["risk"])),
        ("certified in the target", claimed(newest["target_risk"])),
        ("refuted", refutation(maps)),
        ("labels that met their prediction", f"{join['joined']:,}"),
        ("predictions that wait, or waited in vain", f"{shown['pending']:,}, {join['expired']:,}"),
        *(
            (f"{share:.0%} of the labels came within", f"{np.quantile(waited, share):.1f} h")
            for share in SHARES
        ),
    ]
    return {"show": markdown(("", "at the end of the year"), rows)}


def draw_risks(axes: Axes, maps: list[dict[str, Any]]) -> None:
    """Draw the certified risk at the end of every day."""
    rows = days_of(maps)
    days = [datetime.fromtimestamp(row["time"], UTC) for row in rows]
    for kind, colour, style in (("risk", BLUE, "-"), ("target_risk", VERMILION, "--")):
        # A missing claim is drawn as 1, which claims nothing.
        values = [1.0 if (value := row["certificate"][kind]) is None else value for row in rows]
        axes.plot(days, values, color=colour, linestyle=style, linewidth=1.1, label=kind)  # type: ignore[arg-type]
    axes.axhline(1.0, color=GREY, linewidth=0.8)
    axes.set(
        title="streamcal_certified_risk, at the end of the day",
        yscale="log",
        ylabel="certified upper bound",
        ylim=(None, 2.0),
    )
    months(axes)
    axes.legend(frameon=False, loc="upper right", ncols=2, bbox_to_anchor=(1.0, 0.93))


def draw_delays(axes: Axes, waited: Values) -> None:
    """Draw the share of labels that have come, against the hours since the prediction."""
    hours = np.linspace(0.0, 12.0, 241)
    axes.plot(hours, np.searchsorted(waited, hours, side="right") / len(waited), color=BLUE)
    axes.set(
        title="streamcal_label_delay_seconds",
        xlabel="hours since the prediction",
        ylabel="share of labels that have come",
        xlim=(0, 12),
        ylim=(0, 1.02),
    )


def draw(maps: list[dict[str, Any]], waited: Values) -> Figure:
    """Draw the picture."""
    figure = canvas(10.5, 3.8)
    left, right = figure.subplots(1, 2)
    draw_risks(left, maps)
    draw_delays(right, waited)
    return figure


def main() -> None:
    """Draw, and fill the page."""
    with tempfile.TemporaryDirectory() as folder:
        shown, maps = run(Path(folder)), published(Path(folder))
    waited = delays()
    publish(draw(maps, waited), tables(shown, maps, waited), "operations")


if __name__ == "__main__":
    main()
