"""State of a run in a store, and a read-only view of it: its pipeline, and the options of its engines."""

from __future__ import annotations

import msgspec

from streamcal.events.columns import Columns
from streamcal.events.guard import GuardState
from streamcal.join.config import JoinConfig
from streamcal.run.config import RunConfig, SegmentsConfig
from streamcal.run.outcome import PipelineState
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import Checkpoint, Store
from streamcal.sketch.decoding import Count, decoded, restoring


class StoredRun(msgspec.Struct, omit_defaults=True):
    """State of a run beside engines and entries: `streamcal.run.ports.Checkpoint.run`."""

    pipeline: PipelineState
    times: dict[str, dict[str, float]]
    """Event time that the merge has reached, by source and partition."""
    watermark: float | None = None
    """Watermark of the next micro-batch of endless sources; None: unknown."""
    calibrations: Count = 0
    """Number of calibrations that have published their maps."""
    guards: dict[str, dict[str, GuardState]] = {}
    """Guards of the times of the next events, by source and partition."""
    shard: str | None = None
    """`streamcal.run.ports.Shard` whose partitions were read; None: all."""


def stored_run(checkpoint: Checkpoint) -> StoredRun | None:
    """Return the state of a run in a store, or None before the first commit.

    Raises
    ------
    DamagedStateError
        if the state cannot be decoded.
    """
    return decoded(checkpoint.run, StoredRun, "a run", json=True) if checkpoint.run else None


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
    run = stored_run(checkpoint)
    if run is None:
        return None
    own = run.pipeline
    positive, options = None if own.positive == "1" else own.positive, own.options
    limit = options.config.delay_limit_seconds
    # The join's options are not in a store, but for the one that its engines have, too.
    join = JoinConfig(missing_labels="drop" if limit is None else "negative", label_delay_limit=limit)
    with restoring("not the state of a run"):
        whole = RunConfig(
            recalibrator=options.config,
            join=join,
            columns=Columns(positive=positive, classes=options.classes),
            segments=SegmentsConfig(fields=options.fields, own_engines=options.own_engines),
        )
    pipeline = Pipeline(whole)
    pipeline.restore(own, checkpoint.engines, checkpoint.segments, checkpoint.packs)
    pipeline.sampler, pipeline.decisions = own.sampler, own.decisions
    return pipeline
