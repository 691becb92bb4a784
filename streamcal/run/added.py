"""Fields that rows have beyond the answers, each declared once: name, type, and values as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from streamcal.base.values import Counts, Floats
from streamcal.events import KeptValue
from streamcal.maps.rate_limits import RateLimits
from streamcal.quality.decision_figures import decision_names
from streamcal.quality.decisions import Decision
from streamcal.run.rows import AnswerColumns, Column
from streamcal.sampling import Sampler

Decide: TypeAlias = Callable[[Floats, Floats, Floats], Counts]
"""Function of scores, probabilities and times that returns cells of decisions, int64[n]."""


class Field(NamedTuple):
    """A field of a row."""

    name: str
    type: Any
    example: Any


class Added(NamedTuple):
    """Fields whose values are made together."""

    fields: Sequence[Field]
    columns: Callable[[AnswerColumns], Sequence[Column]]


def added_fields(
    keep: Sequence[str], decide: Decide | None, sampler: Sampler | None, *, intervals: bool
) -> list[Added]:
    """Return the fields of a row behind those of the answer, in their order.

    Parameters
    ----------
    keep
        names of the first values that pass through; any texts.
    decide
        what decides; None: nothing is decided.
    sampler
        what says which labels to ask for; None: there is none.
    intervals
        whether rows have the interval for the rate of label 1.
    """
    added = list[Added]()
    if decide is not None:
        decision = Field("decision", Decision, "pass")
        added.append(Added([decision], partial(_decided, decide)))
    if keep:
        added.append(Added([Field(name, KeptValue, None) for name in keep], partial(_kept, len(keep))))
    if sampler is not None:
        fields = [Field("ask", bool, False), Field("propensity", float, 0.05)]
        added.append(Added(fields, partial(_asked, sampler)))
    if intervals:
        added.append(Added([Field("low", float, 0.74), Field("high", float, 0.86)], _intervals))
    return added


def with_fields(answers: AnswerColumns, row: Any, added: Sequence[Added]) -> AnswerColumns:
    """Return answers with the fields that are added to them; ``row`` is the type of such rows."""
    columns = [column for each in added for column in each.columns(answers)]
    names = [field.name for each in added for field in each.fields]
    return answers._replace(row=row, added=dict(zip(names, columns, strict=True)))


def _decided(decide: Decide, of: AnswerColumns) -> Sequence[Column]:
    cells = decide(of.scores, of.probabilities, of.times) if of.decided is None else of.decided
    return [decision_names(cells)]


def _kept(count: int, answers: AnswerColumns) -> Sequence[Column]:
    if answers.kept is None:
        return [[None] * len(answers.ids)] * count
    return list(map(list, islice(zip(*answers.kept, strict=True), count)))


def _asked(sampler: Sampler, answers: AnswerColumns) -> Sequence[Column]:
    chances = 1.0 / np.asarray(answers.drawn)
    asked = map(sampler.asks, map(str, answers.ids.tolist()), chances.tolist())
    return np.fromiter(asked, np.bool_, len(chances)), chances


def _intervals(answers: AnswerColumns) -> Sequence[Column]:
    ends, known = np.empty((2, len(answers.ids))), {id(each): each for each in answers.limits}
    formed = np.array([id(each) for each in answers.limits])[answers.which]
    order = np.argsort(formed, kind="stable")
    for at in np.split(order, np.flatnonzero(np.diff(formed[order])) + 1):
        limits = known[int(formed[at[0]])] or RateLimits.none()
        ends[:, at] = limits.at(answers.scores[at], answers.probabilities[at])
    return list(ends)
