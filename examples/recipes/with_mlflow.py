"""A map as a model of MLflow: logged with its certificate, loaded by its address, and asked.

The file is both the model ("models from code") and what logs it. The answers have the map's bits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.models import infer_signature

from streamcal import RecalibrationMap, Recalibrator, __version__
from streamcal.testing import NormalPair


class Calibrated(mlflow.pyfunc.PythonModel):
    """Scores in, probabilities out."""

    def load_context(self, context: Any) -> None:
        self.map = RecalibrationMap.model_validate_json(Path(context.artifacts["map"]).read_text())

    def predict(self, context: Any, model_input: pd.DataFrame) -> Any:  # noqa: ARG002
        return self.map.predict_many(model_input["score"].to_numpy(np.float64))


mlflow.models.set_model(Calibrated())


def main() -> None:
    engine = Recalibrator()
    engine.learn_many(*NormalPair(0.3).sample(1_000, np.random.default_rng(0)))
    certificate = engine.certificate
    assert certificate is not None
    Path("map.json").write_text(engine.map.model_dump_json())

    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    scores = pd.DataFrame({"score": np.linspace(0.0, 1.0, 1_001)})
    expected = engine.map.predict_many(scores["score"].to_numpy())
    with mlflow.start_run():
        mlflow.log_metric("certified_risk", certificate.risk, step=engine.map.version)
        logged = mlflow.pyfunc.log_model(
            name="calibration",
            python_model=__file__,
            artifacts={"map": "map.json"},
            signature=infer_signature(scores, expected),
            pip_requirements=[f"streamcal-engine=={__version__}", "pandas"],
        )
    answers = mlflow.pyfunc.load_model(logged.model_uri).predict(scores)
    np.testing.assert_array_equal(answers, expected)
    print(f"version {engine.map.version} logged, loaded, and {len(answers):,} of its answers equal")


if __name__ == "__main__":
    main()
