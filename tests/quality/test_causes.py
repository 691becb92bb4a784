"""Verdicts on streams whose truth is known: no sentence is wrong, and following the advice helps.

Streams and seeds are fixed, and verdicts are looked at some dozens of times on each. If one stream in 100
had a wrong sentence, seeds that were drawn would fail here with probability 0.05. More of them: ``python
-m benchmarks.verdict --parts kinds advice``.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import verdict
from benchmarks.verdict import ADVICE, KINDS, is_wrong, replayed

pytestmark = [pytest.mark.slow, pytest.mark.statistical]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of two fifths of those of the benchmark."""
    monkeypatch.setattr(verdict, "N", 12_000)


HARD = ("negatives weekly", "a source, 1e-3, positives later", "four scores")


@pytest.mark.parametrize("kind", HARD)
def test_no_sentence_is_wrong(kind: str) -> None:
    stream = KINDS[kind](np.random.default_rng(1))
    looks, _, served = replayed(stream)
    assert not [look.verdict.sentence for look in looks if is_wrong(look, stream, served)]
    assert not [look.verdict.sentence for look in looks if look.verdict.cause is not None]
    assert looks[-1].verdict.state != "cannot tell"


@pytest.mark.parametrize("kind", ADVICE)
def test_advice_helps(kind: str) -> None:
    what, follow = ADVICE[kind]
    stream = KINDS[kind](np.random.default_rng(1))
    later = stream.times >= (0.0 if stream.changes == np.inf else stream.changes)
    looks, _, before = replayed(stream)
    said = looks[-1].verdict
    assert said.deviates
    assert said.cause == stream.cause
    assert what.removeprefix("the ").split()[-1].strip('"') in said.advice  # "auto", or the class
    _, _, after = replayed(follow(stream))
    assert np.mean((after - stream.labels)[later] ** 2) < np.mean((before - stream.labels)[later] ** 2)
    assert abs(np.mean((after - stream.means)[later])) < abs(np.mean((before - stream.means)[later]))
