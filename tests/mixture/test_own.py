"""Candidates of one's own: registered, weighed, served, and restored."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from streamcal import Recalibrator
from streamcal.errors import DamagedStateError
from streamcal.mixture.candidates import clear, register
from streamcal.values import Floats


class Bowl:
    """A map that falls and rises again in one step each, which no candidate of the package follows."""

    name = "target/bowl/500"
    memory = 500

    def fit(self, logits: Floats, counts: Floats) -> tuple[Floats, Floats]:
        inside = np.sin(40.0 * logits) > 0.0
        rates = [(counts[1, part].sum() + 0.5) / (counts[:, part].sum() + 1.0) for part in (~inside, inside)]
        knots = np.linspace(-5.0, 5.0, 4001)
        return knots, np.where(np.sin(40.0 * knots) > 0.0, rates[1], rates[0])


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    clear()


def stream(n: int) -> tuple[Floats, Floats]:
    """Return scores, and labels whose rate turns with each step of `Bowl`."""
    rng = np.random.default_rng(3)
    logits = rng.uniform(-1.0, 1.0, n)
    return 1.0 / (1.0 + np.exp(-logits)), (rng.random(n) < np.where(np.sin(40 * logits) > 0, 0.9, 0.1)) * 1


def weights(engine: Recalibrator) -> dict[str, float]:
    """Return the weights of the mixture."""
    mixing = engine.mixing
    assert mixing is not None
    return mixing.weights


def test_a_registered_candidate_is_weighed_served_and_restored() -> None:
    plain, engine, (scores, labels) = Recalibrator(), Recalibrator(), stream(3000)
    for each in (plain, engine):
        if each is engine:
            register(Bowl())
        for part in np.split(np.arange(3000), 30):
            each.observe_many(scores[part])
            each.learn_many(scores[part], labels[part])
    assert Bowl.name not in weights(plain)
    assert weights(engine)[Bowl.name] > 0.9
    waves = np.sin(40.0 * np.log(scores / (1.0 - scores)))
    off_edges = np.abs(waves) > 0.7  # the served map is one of steps, with edges of its own
    squares = [(each.predict_many(scores) - np.where(waves > 0.0, 0.9, 0.1)) ** 2 for each in (engine, plain)]
    risks = [float(each[off_edges].mean()) for each in squares]
    assert risks[0] < 0.5 * risks[1]
    state = engine.to_bytes()
    again = Recalibrator.from_bytes(state)
    assert again.to_bytes() == state
    np.testing.assert_array_equal(again.predict_many(scores), engine.predict_many(scores))
    for each in (engine, again):
        each.learn_many(scores[:500], labels[:500])
    assert again.to_bytes() == engine.to_bytes()


def test_a_state_needs_the_candidates_that_it_was_made_with() -> None:
    register(Bowl())
    engine = Recalibrator()
    engine.learn_many(*stream(300))
    state = engine.to_bytes()
    clear()
    with pytest.raises(DamagedStateError, match=r"own candidates are \['target/bowl/500'\], and \[\] are"):
        Recalibrator.from_bytes(state)


def test_what_is_no_candidate_is_refused() -> None:
    register(Bowl())
    with pytest.raises(ValueError, match="there is a candidate 'target/bowl/500' already"):
        register(Bowl())
    clear()
    long = Bowl()
    long.memory = 20_000
    with pytest.raises(ValueError, match="must be from 1 to 16,000 labels, got 20000"):
        register(long)

    class Wrong(Bowl):
        def fit(self, logits: Floats, counts: Floats) -> tuple[Floats, Floats]:
            return logits, 1.5 + counts[0]

    register(Wrong())
    with pytest.raises(ValueError, match="candidate 'target/bowl/500' must return knots"):
        Recalibrator().learn_many(*stream(300))
