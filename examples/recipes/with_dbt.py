"""A map as a model of dbt, on DuckDB: the query of ``streamcal sql``, tested by dbt."""

from __future__ import annotations

import subprocess
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
from dbt.cli.main import dbtRunner

from streamcal import Recalibrator
from streamcal.testing import NormalPair

FILES = {
    "dbt_project.yml": "{name: scoring, profile: scoring, seeds: {+column_types: {score: double}}}",
    "profiles.yml": "scoring: {target: dev, outputs: {dev: {type: duckdb, path: scoring.duckdb}}}",
    "models/schema.yml": """
models:
  - name: calibrated
    columns:
      - {name: probability, data_tests: [not_null]}
""",
}


def main() -> None:
    pair = NormalPair(0.3)
    engine = Recalibrator()
    engine.learn_many(*pair.sample(1_000, np.random.default_rng(0)))
    Path("map.json").write_text(engine.map.model_dump_json())
    command = ["streamcal", "sql", "map.json", "--dialect", "duckdb", "--table", "predictions"]
    query = subprocess.run(command, check=True, capture_output=True, text=True).stdout

    for folder in ("models", "seeds"):
        Path(folder).mkdir()
    for name, text in FILES.items():
        Path(name).write_text(text)
    model = query.replace('"predictions"', "{{ ref('predictions') }}").rstrip(";\n")
    Path("models/calibrated.sql").write_text(model)
    scores, _ = pair.sample(1_000, np.random.default_rng(1))
    pd.DataFrame({"id": np.arange(len(scores)), "score": scores}).to_csv("seeds/predictions.csv", index=False)
    done = dbtRunner().invoke(["--quiet", "build", "--project-dir", ".", "--profiles-dir", "."])
    assert done.success, done.exception or [each.message for each in done.result]

    with duckdb.connect("scoring.duckdb") as database:
        rows = database.sql("select score, probability from calibrated").fetchnumpy()
    expected = engine.map.predict_many(rows["score"])
    np.testing.assert_allclose(rows["probability"], expected, rtol=0.0, atol=1e-15)
    print(
        f"{len(done.result.results)} nodes of dbt built; {len(expected):,} probabilities are those of the map"
    )


if __name__ == "__main__":
    main()
