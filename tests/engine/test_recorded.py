"""Engines of every mode give after 20,000 labels what the commit gave that recorded it, to the last bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcal import Recalibrator
from tests.engine.recorded import VARIANTS, arithmetic, row, stream

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("which", RECORDED["rows"])
def test_maps_certificates_and_answers_are_those_recorded(which: str) -> None:
    """On a processor with other last bits of exp and log, the figures are compared in place of the bits."""
    now, then = row(*which.split(" | ")), dict(RECORDED["rows"][which])
    if arithmetic() == RECORDED["arithmetic"]:
        assert now == then
    for figures in (now, then):
        del figures["digest"]
    assert now.pop("said") == pytest.approx(then.pop("said"), rel=1e-6)
    assert now.pop("risk") == pytest.approx(then.pop("risk"), rel=1e-6)
    assert now == then


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_many_at_once_give_the_state_of_one_by_one(variant: str) -> None:
    """Map, version, alarms and certificate follow from the state, of which every byte is equal.

    In mode auto this holds of target labels that say when they were predicted: those of one call that do not
    were predicted before it.
    """
    one, many = (Recalibrator(**VARIANTS[variant]) for _ in range(2))
    rng = np.random.default_rng(1)
    domains: list[Any] = ["source", "target"]
    for domain, (scores, labels) in zip(domains, stream(), strict=True):
        seen = 0 if domain == "target" and VARIANTS[variant]["mode"] == "auto" else None
        for score, label in zip(scores.tolist(), labels.tolist(), strict=True):
            one.learn_one(score, label, domain, prediction_index=seen)
        start = 0
        while start < len(scores):
            end = start + int(rng.integers(1, 7_000))
            many.learn_many(scores[start:end], labels[start:end], domain, prediction_index=seen)
            start = end
        assert one.to_bytes() == many.to_bytes()
        assert one.certificate == many.certificate
    assert one.alarms == many.alarms
