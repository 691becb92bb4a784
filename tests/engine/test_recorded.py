"""Engines of every mode give after 20,000 labels what they gave when that was recorded, on any machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.recorded import row
from tests.figures import unlike
from tests.nightly import one_in

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("which", one_in(3, RECORDED))
def test_maps_certificates_and_answers_are_those_recorded(which: str) -> None:
    """If a change is meant to move them: ``python tests/engine/recorded.py > tests/engine/recorded.json``."""
    now = json.loads(json.dumps(row(*which.split(" | "))))
    assert not [*unlike(now, RECORDED[which])]
    assert now.keys() == RECORDED[which].keys()
