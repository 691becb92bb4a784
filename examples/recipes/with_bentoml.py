"""A map as a service of BentoML: requests that come together are answered in one batch.

``bentoml serve with_bentoml:Calibrated`` starts it where map.json is.
"""

from __future__ import annotations

import os
from pathlib import Path
from socket import create_server

import bentoml
import numpy as np

from streamcal import RecalibrationMap, Recalibrator
from streamcal.testing import NormalPair


@bentoml.service(name="calibration", workers=1)
class Calibrated:
    """Scores in, probabilities out."""

    def __init__(self) -> None:
        self.map = RecalibrationMap.model_validate_json(Path("map.json").read_text())

    @bentoml.api(batchable=True)
    def predict(self, scores: np.ndarray) -> np.ndarray:
        return self.map.predict_many(scores)


def main() -> None:
    engine = Recalibrator()
    engine.learn_many(*NormalPair(0.3).sample(1_000, np.random.default_rng(0)))
    Path("map.json").write_text(engine.map.model_dump_json())
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # where the server finds this module
    scores = np.linspace(0.0, 1.0, 1_001)
    with create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with (
        bentoml.serve(f"{Path(__file__).stem}:Calibrated", host="127.0.0.1", port=port) as server,
        bentoml.SyncHTTPClient(server.url, server_ready_timeout=120) as client,
    ):
        answers = client.predict(scores=scores)
    np.testing.assert_array_equal(answers, engine.map.predict_many(scores))
    print(f"{len(answers):,} answers over HTTP equal those of version {engine.map.version}")


if __name__ == "__main__":
    main()
