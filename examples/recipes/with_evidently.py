"""A report of Evidently on the rows of a run: probabilities, compared with the scores they were made of."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
from evidently import BinaryClassification, DataDefinition, Dataset, Report
from evidently.presets import ClassificationQuality

from streamcal.testing import NormalPair


def main() -> None:
    scores, labels = NormalPair(0.3).sample(1_000, np.random.default_rng(0))
    ids = [f"e{place}" for place in range(len(scores))]
    both = pd.DataFrame({"id": ids, "score": scores, "label": labels, "time": 1.7e9 + np.arange(len(scores))})
    both.to_json("events.jsonl", orient="records", lines=True)
    command = ["streamcal", "run", "--events", "events.jsonl", "--output", "rows.jsonl"]
    subprocess.run([*command, "--summary", "summary.json"], check=True, capture_output=True)

    rows = pd.read_json("rows.jsonl", lines=True).merge(both[["id", "label"]], on="id")
    definition = DataDefinition(
        classification=[BinaryClassification(target="label", prediction_probas="forecast", pos_label=1)]
    )
    now, reference = (
        Dataset.from_pandas(
            pd.DataFrame({"label": rows["label"], "forecast": rows[column]}), data_definition=definition
        )
        for column in ("probability", "score")
    )
    report = Report([ClassificationQuality()]).run(now, reference)
    report.save_html("evidently.html")
    found = {each["metric_name"].split("(")[0]: each["value"] for each in report.dict()["metrics"]}
    told = json.loads(Path("summary.json").read_text())
    before, after = told["log_loss_before"], found["LogLoss"]
    assert abs(after - told["log_loss_after"]) < 1e-6, (found, told)
    print(f"log loss {before:.4f} of the scores and {after:.4f} of the probabilities, as the run says")


if __name__ == "__main__":
    main()
