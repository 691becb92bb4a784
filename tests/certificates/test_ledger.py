"""The ledger: what a restored state must hold."""

from __future__ import annotations

import pytest

from streamcal.certificates.certificate_target import CertificateTarget
from streamcal.certificates.ledger import Ledger
from streamcal.sketch.score_sketch import ScoreSketch


def test_forecasts_of_more_labels_than_there_are_are_refused() -> None:
    sketch = ScoreSketch()
    sketch.add([0.1, 0.9, 0.4], [0, 1, 0])
    ledger = Ledger(CertificateTarget("formed", by_label_shift=False))
    ledger.score("source", sketch)
    ledger.check_forecasts("source", 3)
    with pytest.raises(ValueError, match="forecasts of 3 labels, of which there are 2"):
        ledger.check_forecasts("source", 2)
