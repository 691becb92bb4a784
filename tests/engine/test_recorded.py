"""Engines of every mode give after 20,000 labels what they gave when that was recorded, on any machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcal import Recalibrator
from tests.engine.recorded import VARIANTS, row, stream
from tests.figures import unlike
from tests.inside import memo_of, memos_of
from tests.nightly import one_in

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("which", one_in(7, RECORDED))
def test_maps_certificates_and_answers_are_those_recorded(which: str) -> None:
    """If a change is meant to move them: ``python tests/engine/recorded.py > tests/engine/recorded.json``."""
    now = json.loads(json.dumps(row(*which.split(" | "))))
    assert not [*unlike(now, RECORDED[which])]
    assert now.keys() == RECORDED[which].keys()


@pytest.mark.slow
@pytest.mark.parametrize("variant", one_in(4, VARIANTS))
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
            one.learn_one(score, label, domain, memo=memo_of(seen))
        start = 0
        while start < len(scores):
            end = start + int(rng.integers(1, 7_000))
            many.learn_many(
                scores[start:end], labels[start:end], domain, memos=memos_of(seen, len(labels[start:end]))
            )
            start = end
        assert one.to_bytes() == many.to_bytes()
        assert one.certificate == many.certificate
    assert one.alarms == many.alarms
