"""A store whose keys, ids and rejects would break out of a page that took them as they are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from streamcal.run.connectors import Connectors
from streamcal.run.outputs import NullSink, Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, Runner
from streamcal.testing import NormalPair

KEYS = (
    "<img src=x onerror=alert(1)>",
    "</style></title><script>alert(2)</script>",
    "\"'&amp; \u202eright to left",
    "k" * 400,
)
BAD = (
    '{"id":"a","score":0.5,"<script>alert(3)</script>":1}\n'
    "<!-- </table> --><script>alert(4)</script>\n"
    '{"id":"<b>","score":"<i>"}\n'
)


def hostile_store(folder: Path, n: int = 3000) -> Path:
    """Run a stream with such keys into a store; return its path."""
    rng = np.random.default_rng(5)
    scores, labels = NormalPair(0.3).sample(n, rng)
    events = folder / "<u>events&.jsonl"
    rows = [
        {"id": f"<{number}>", "time": 60.0 * number, "score": score, "label": label, "key": KEYS[number % 4]}
        for number, (score, label) in enumerate(zip(scores.tolist(), labels.tolist(), strict=True))
    ]
    events.write_text("".join(json.dumps(row) + "\n" for row in rows) + BAD)
    path = folder / "hostile.db"
    connectors = Connectors()
    source, store = connectors.source(str(events), SourceOptions()), connectors.store(str(path))
    ticks = iter(range(10**9))
    Runner(
        Pipeline(), Inputs([], [source]), Outputs(NullSink()), store, clock=lambda: next(ticks) * 0.01
    ).run()
    source.close()
    store.close()
    return path
