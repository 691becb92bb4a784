"""The engine: schedule, modes, equivalences, state."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from streamcal import DamagedStateError, Recalibrator, RecalibratorConfig
from streamcal.engine.schedule import Schedule
from streamcal.maps.uniform_mass import uniform_mass_binning
from streamcal.mixture.mixture import START
from streamcal.testing import NormalPair

MODES = ["auto", "source", "label_shift", "target", "composite"]


def sample(n: int, seed: int, prior: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    return NormalPair(prior).sample(n, np.random.default_rng(seed))


@given(st.integers(0, 10**7), st.sampled_from([1.01, 1.1, 2.0, 16.0]))
def test_schedule_counts_by_definition(labels: int, growth: float) -> None:
    passed = Schedule(growth).passed(labels)
    assert passed == 0 or math.ceil(64 * growth ** (passed - 1)) <= labels
    assert math.ceil(64 * growth**passed) > labels


def test_before_any_label_the_score_is_its_own_probability() -> None:
    for mode in MODES:
        engine = Recalibrator(mode=mode)
        # Mode auto says nothing that is more certain than 1e-4 before there is any label.
        ends = [START, 1.0 - START] if mode == "auto" else [0.0, 1.0]
        said = [engine.predict_one(z) for z in (0.0, 0.1, 1 / 3, 1.0)]
        assert said[1:3] == [0.1, 1 / 3]
        assert [said[0], said[3]] == (pytest.approx(ends, rel=1e-12) if mode == "auto" else ends)
        assert engine.predict_many([0.1, 1 / 3]).tolist() == [0.1, 1 / 3]
        assert (engine.version, engine.map.version, engine.source.prior) == (0, 0, None)
        assert engine.map.kind == ("linear" if mode == "auto" else "step")


def test_the_first_map_comes_with_the_64th_label() -> None:
    scores, labels = sample(64, 1)
    engine = Recalibrator()
    engine.learn_many(scores[:63], labels[:63], "source")
    assert engine.version == 0
    engine.learn_one(scores[63], labels[63], "source")
    assert engine.version == 1
    assert engine.map.bins > 1


def test_h_is_frozen_between_versions_and_g_is_not() -> None:
    scores, labels = sample(1000, 2)
    engine = Recalibrator(mode="composite")
    engine.learn_many(scores, labels, "source")
    frozen = engine.map
    engine.learn_one(0.5, 1, "source")
    assert (engine.map.edges, engine.map.values) == (frozen.edges, frozen.values)
    assert engine.predict_one(0.6) == frozen.predict_one(0.6)
    engine.learn_one(0.01, 0, "target")
    assert (engine.map.edges, engine.map.values) == (frozen.edges, frozen.values)
    assert engine.predict_one(0.5) < frozen.predict_one(0.5)


def test_damaged_state_is_refused() -> None:
    state = Recalibrator().to_bytes()
    for data, message in [
        (b"", "begins with b''"),
        (pickle.dumps(1), "not an engine state"),
        (state[:4] + b"\x05" + state[5:], "has format 5; this version of streamcal reads format 11 only"),
        (state[:-9], "checksum"),
        (state[:50] + b"\0" + state[51:], "checksum"),
    ]:
        with pytest.raises(DamagedStateError, match=message):
            Recalibrator.from_bytes(data)


def test_modes_by_their_definitions() -> None:
    (z_p, y_p), (z_q, y_q) = sample(1000, 4), sample(100, 5, prior=0.1)
    engines = {mode: Recalibrator(mode=mode, bins=5) for mode in MODES}
    for engine in engines.values():
        engine.learn_many(z_p, y_p, "source")
        engine.learn_many(z_q, y_q, "target")
        engine.refresh()
    h_p, h_q = uniform_mass_binning(z_p, y_p, 5), uniform_mass_binning(z_q, y_q, 5)
    p, q = ((y.sum() + 0.5) / (len(y) + 1) for y in (y_p, y_q))
    w0, w1 = (1 - q) / (1 - p), q / p
    scores = np.linspace(0, 1, 101)

    def g(p: np.ndarray) -> np.ndarray:
        return w1 * p / (w1 * p + w0 * (1 - p))

    for mode, expected in {
        "source": h_p.predict_many(scores),
        "target": h_q.predict_many(scores),
        "label_shift": g(scores),
        "composite": g(h_p.predict_many(scores)),
    }.items():
        # Cells are finer than the distances between 1,000 scores, so the bins are the paper's.
        assert np.isclose(engines[mode].predict_many(scores), expected).mean() > 0.97, mode


def test_priors_are_krichevsky_trofimov() -> None:
    engine = Recalibrator(mode="composite")
    engine.learn_many([0.1] * 100, [0] * 90 + [1] * 10, "source")
    engine.learn_one(0.1, 0, "target")
    assert engine.source.prior == pytest.approx(10.5 / 101)
    assert engine.target.prior == pytest.approx(0.5 / 2)
    assert engine.predict_one(0.1) > 0, "a target without a positive yet must not predict 0"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scores", [[0.0], [0.0, 1.0]], ids=str)
@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_degenerate_streams_give_sane_maps(mode: str, scores: list[float], rate: float) -> None:
    engine = Recalibrator(mode=mode)
    labels = [int(index % 10 < 10 * rate) for index in range(200)]
    engine.learn_many((scores * 200)[:200], labels, "source")
    engine.learn_many((scores * 200)[:100], labels[:100], "target")
    engine.refresh()
    probabilities = engine.predict_many(np.linspace(0, 1, 101))
    assert np.isfinite(probabilities).all()
    assert ((probabilities >= 0) & (probabilities <= 1)).all()


@pytest.mark.parametrize("column", [pd.Series, pl.Series, pa.array])
def test_columns_of_every_kind(column: type) -> None:
    scores, labels = sample(500, 6)
    engine, twin = Recalibrator(), Recalibrator()
    engine.learn_many(scores, labels)
    twin.learn_many(column(scores.tolist()), column(labels.tolist()))
    assert engine.to_bytes() == twin.to_bytes()
    assert engine.predict_many(scores).tolist() == engine.predict_many(column(scores.tolist())).tolist()


def test_options_are_checked() -> None:
    for options in [{"bins": 0}, {"bins": "many"}, {"delta": 0}, {"mode": "best"}]:
        with pytest.raises(ValidationError, match=next(iter(options))):
            Recalibrator(**options)
    with pytest.raises(ValueError, match="either a config or options"):
        Recalibrator(RecalibratorConfig(), bins=3)
    assert Recalibrator(RecalibratorConfig(bins=3)).config.bins == 3
