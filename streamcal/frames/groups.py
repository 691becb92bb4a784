"""GroupedPipeline: a pipeline that also sums up, for each key and each segment, what its labels say."""

from __future__ import annotations

from typing import Any

from streamcal.quality.groups import SUMS, add_label
from streamcal.run.pipeline import Pipeline
from streamcal.segments.segments import names_of

__all__ = ["GroupedPipeline"]


class GroupedPipeline(Pipeline):
    """Pipeline of a backtest; parameters are those of `Pipeline`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.by_segment: dict[tuple[str | None, ...], list[float]] = {}
        """Sums (`streamcal.quality.groups`) of each field and its value."""
        self.by_key: dict[tuple[str | None, ...], list[float]] = {}
        """Sums of each key."""
        super().__init__(*args, **kwargs)

    def _rate(self) -> None:
        unrated, fields = self._unrated, self.segments.fields
        each = zip(unrated.scores, unrated.probabilities, unrated.labels, strict=True)
        for index, joined in enumerate(each):
            add_label(self.by_key.setdefault((unrated.keys[index],), [0.0] * SUMS), *joined)
            if fields:
                names = names_of(unrated.segments[index], len(fields))
                for group in zip(fields, names, strict=True):
                    add_label(self.by_segment.setdefault(group, [0.0] * SUMS), *joined)
        super()._rate()
