"""A claim does not change: what is worked out later is what would have been worked out at once."""

import numpy as np
import pytest

from streamcal import Certificate, LabelEvent, MapPublished, PredictionEvent, Recalibrator
from streamcal.engine.config import Mode


@pytest.mark.parametrize("mode", ["auto", "target"])
def test_certificates_and_maps_read_at_the_end_are_those_read_at_once(mode: Mode) -> None:
    rng = np.random.default_rng(41)
    engines = [Recalibrator(mode=mode) for _ in range(2)]
    scores = rng.random(500)
    labels = (rng.random(500) < scores).astype(int)
    for engine in engines:
        engine.learn_many(scores, labels, "source")
    at_once, late = list[tuple[object, Certificate | None]](), list[MapPublished]()
    for number, score in enumerate(rng.random(1_500).tolist()):
        label = int(rng.random() < score**2)
        for event in (PredictionEvent(f"{number}", score), LabelEvent(f"{number}", label)):
            for emission in engines[0].step(event):
                if isinstance(emission, MapPublished):
                    at_once.append((emission.map, emission.certificate))
            late += [emission for emission in engines[1].step(event) if isinstance(emission, MapPublished)]
    assert [(emission.map, emission.certificate) for emission in late] == at_once
    assert sum(certificate is not None for _, certificate in at_once) > 5
