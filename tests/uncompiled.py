"""The modules that are compiled, as the Python that they also are."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import streamcal

_ROOT = Path(streamcal.__file__).parents[1]


def spec_of(name: str) -> ModuleSpec | None:
    """Return the spec of a compiled module's Python file; None if the name is of no such module."""
    path = _ROOT.joinpath(*name.split(".")).with_suffix(".py")
    if not name.startswith("streamcal.") or not name.endswith("_c"):
        return None
    return importlib.util.spec_from_file_location(name, path)


def uncompiled(name: str) -> ModuleType:
    """Import a compiled module a second time, as Python; skip, in CI fail, where nothing was compiled."""
    if not streamcal.compiled:
        if os.environ.get("CI"):
            pytest.fail("nothing was compiled")
        pytest.skip("nothing was compiled: there was no C compiler at the installation")
    spec = spec_of(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert str(module.__file__).endswith(".py")
    return module


class FromPython:
    """Finds the Python files of all compiled modules, for a process in which nothing is compiled."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find a module, as `sys.meta_path` asks."""
        return spec_of(name)


def import_uncompiled() -> None:
    """Let this process import all compiled modules as Python; none may have been imported before."""
    for name in [name for name in sys.modules if name == "streamcal" or name.startswith("streamcal.")]:
        del sys.modules[name]
    sys.meta_path.insert(0, FromPython)


def learned() -> str:
    """Return states of an engine, as hexadecimal digits, and what it answers and certifies restored."""
    import streamcal
    from streamcal.testing import NormalPair

    engine = streamcal.Recalibrator()
    scores, labels = NormalPair(0.3).sample(400, np.random.default_rng(2))
    for score, label in zip(scores.tolist(), labels.tolist(), strict=True):
        engine.learn_one(score, label)
    state = engine.to_bytes()
    restored = streamcal.Recalibrator.from_bytes(state)
    engine.learn_many(scores, labels, weights=1.0 + scores)  # the state of weights
    answers = [restored.predict_one(score) for score in scores[:9].tolist()]
    return f"{state.hex()} {answers} {restored.certificate!r} {engine.to_bytes().hex()}"


def classed() -> str:
    """Return what engines of many classes answer, and their states, as a hash: labels of every kind."""
    from streamcal import Recalibrator

    found = hashlib.sha256()
    for classes in (3, 70):  # all have an engine, or the few with most labels
        rng = np.random.default_rng(classes)
        engine, memos = Recalibrator(classes=[f"{code}" for code in range(classes)]), {}
        rows, codes = rng.dirichlet(np.full(classes, 0.5), 200), rng.geometric(0.3, 200) % classes
        engine.learn_many(rows[:40], codes[:40], "source")
        for i in range(40, 120):
            answers = engine.answer_many(rows[i : i + 1], observes=bool(i % 3))
            found.update(answers.probabilities.tobytes())
            (memos[i],) = answers.memos
            if i % 3:
                past = max(i - 9, 40)
                engine.learn_one(rows[past], int(codes[i]), weight=float(i % 2 + 1), memo=memos[past])
            else:
                engine.learn_one(rows[i], int(codes[i]), "source" if i % 9 else "target")
        engine.learn_many(rows[120:], codes[120:])
        found.update(engine.predict_one(rows[0]).tobytes() + engine.to_bytes())
    return found.hexdigest()


def joined() -> str:
    """Return what comes out of a run over blocks of every kind of event, and its state, as a hash."""
    from streamcal import JoinConfig, LabelEvent, PredictionEvent, Recalibrator, RecalibratorConfig
    from streamcal.events.blocks import NO_LABEL, Block
    from streamcal.run.config import RunConfig
    from streamcal.run.order import MicroBatch, TimesRead
    from streamcal.run.pipeline import Pipeline

    rng = np.random.default_rng(3)
    pipeline = Pipeline(
        RunConfig(
            recalibrator=RecalibratorConfig(mode="composite"),
            join=JoinConfig(max_pending=90, label_ttl=200.0),
        )
    )
    found = hashlib.sha256()
    for start in range(0, 3000, 500):
        times = start + np.arange(500.0) - rng.integers(0, 9, 500)
        score = np.where(rng.random(500) < 0.5, rng.random(500), np.nan)
        label = np.where(np.isnan(score), rng.integers(0, 2, 500), NO_LABEL).astype(np.int8)
        ids = [f"é{number}" for number in (times.astype(int) // 3 - rng.integers(0, 30, 500)).tolist()]
        keys = rng.choice(["k", None], 500).tolist()
        block = Block(ids, score, label, times, "target", keys)
        batch = MicroBatch(block, {}, {}, {}, TimesRead(), [(Nowhere(), 0)], [0], None)
        outcome = pipeline.process(batch)
        found.update(repr((list(outcome.answers), outcome.rejects)).encode())
    found.update(pipeline.join.to_bytes())
    engine = Recalibrator(join=JoinConfig(max_pending=9, label_ttl=40.0))
    for number, score in enumerate(rng.random(300).tolist()):
        id_ = f"{number - rng.integers(0, 20)}"
        for event in (PredictionEvent(f"{number}", score, float(number)), LabelEvent(id_, number % 2)):
            found.update(repr(engine.step(event)).encode())
    found.update(engine.to_bytes())
    assert pipeline.join.counts.joined > 100
    assert pipeline.join.counts.expired > 100
    return found.hexdigest()


class Nowhere:
    """Where events come from."""

    def origin(self, index: int) -> Any:
        from streamcal.events import Origin

        return Origin("", index, b"")
