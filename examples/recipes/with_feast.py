"""A map as an on-demand feature of Feast: the probability of the score that the store has.

The score is the feature that is kept; the map is applied as it is asked for, online and in training sets.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
from feast import Entity, FeatureStore, FeatureView, Field, FileSource
from feast.on_demand_feature_view import on_demand_feature_view
from feast.types import Float64

from streamcal import Recalibrator
from streamcal.testing import NormalPair

CONFIG = """
project: scoring
provider: local
registry: registry.db
online_store: {type: sqlite, path: online.db}
offline_store: {type: file}
entity_key_serialization_version: 3
"""


def main() -> None:
    pair = NormalPair(0.3)
    engine = Recalibrator()
    engine.learn_many(*pair.sample(1_000, np.random.default_rng(0)))
    Path("map.json").write_text(engine.map.model_dump_json())
    Path("feature_store.yaml").write_text(CONFIG)
    now = datetime.now(UTC)
    scores, _ = pair.sample(1_000, np.random.default_rng(1))
    rows = pd.DataFrame(
        {"request": np.arange(len(scores)), "score": scores, "time": now - timedelta(hours=1)}
    )
    rows.to_parquet("scores.parquet")

    request = Entity(name="request", join_keys=["request"])
    scored = FeatureView(
        name="scored",
        entities=[request],
        schema=[Field(name="score", dtype=Float64)],
        source=FileSource(path=str(Path("scores.parquet").resolve()), timestamp_field="time"),
    )

    @on_demand_feature_view(sources=[scored], schema=[Field(name="probability", dtype=Float64)])
    def calibrated(inputs: pd.DataFrame) -> pd.DataFrame:  # Feast keeps its text, so it imports what it needs
        import pandas as pd

        from streamcal import RecalibrationMap

        with open("map.json") as file:  # noqa: PTH123
            served = RecalibrationMap.model_validate_json(file.read())
        return pd.DataFrame({"probability": served.predict_many(inputs["score"].to_numpy())})

    store = FeatureStore(".")
    store.apply([request, scored, calibrated])
    store.materialize(now - timedelta(days=1), now)
    asked = ["scored:score", "calibrated:probability"]
    online = store.get_online_features(asked, [{"request": each} for each in range(len(scores))]).to_df()
    expected = engine.map.predict_many(online["score"].to_numpy())
    np.testing.assert_array_equal(online["probability"], expected)
    past = store.get_historical_features(rows[["request"]].assign(event_timestamp=now), asked).to_df()
    np.testing.assert_array_equal(past["probability"], engine.map.predict_many(past["score"].to_numpy()))
    print(f"{len(online):,} answers online and {len(past):,} of a training set equal those of the map")


if __name__ == "__main__":
    main()
