"""How long labels took."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcal.quality.delays import Delays
from streamcal.sketch.decoding import decoded, encoded

Values = np.ndarray[Any, Any]


def counted(delays: Values, parts: int = 1) -> Delays:
    made = Delays()
    for some in np.array_split(delays, parts):
        made.add(some)
        made = decoded(encoded(made), Delays, "delays")
    return made


def test_quantiles_are_exact_to_a_bin_however_labels_come_in_parts() -> None:
    given = np.exp(np.random.default_rng(4).normal(8.0, 2.0, 20_000))
    whole, parts = (counted(np.append(given, np.nan), count) for count in (1, 7))
    assert whole.labels == 20_000
    for share in (0.1, 0.5, 0.9):
        assert whole.quantile(share) == pytest.approx(np.quantile(given, share), rel=0.15)
    assert parts.counts == whole.counts
