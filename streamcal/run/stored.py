"""Read-only view of a store: its pipeline, and the options of its engines."""

from __future__ import annotations

from itertools import islice

from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.engine import Engine
from streamcal.events.columns import Columns
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import Store
from streamcal.run.runner import pipeline_state
from streamcal.sketch.decoding import encoded

__all__ = ["stored_options", "stored_pipeline"]


def stored_pipeline(store: Store) -> Pipeline | None:
    """Return the pipeline as of the last commit; None before the first.

    Raises
    ------
    StoreError, DamagedStateError
        if the store cannot be read or is damaged.
    ValueError
        if its state is that of another version of streamcal.
    """
    checkpoint = store.load()
    own = pipeline_state(checkpoint)
    if own is None:
        return None
    positive = None if own.positive == "1" else own.positive
    pipeline = Pipeline(stored_options(store), tables=store.tables, columns=Columns(positive=positive))
    pipeline.restore(encoded(own, json=True), checkpoint.engines)
    return pipeline


def stored_options(store: Store) -> RecalibratorConfig:
    """Return the options of the engines, all of which have the same. Raises as `stored_pipeline`."""
    engines = store.load().engines
    for key in islice(engines, 1):
        return Engine.from_bytes(engines[key], key).config
    return RecalibratorConfig()
