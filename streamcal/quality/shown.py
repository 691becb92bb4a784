"""Figures of pyplot for notebooks and scripts. Whatever draws on a server keeps to bare figures instead."""

from __future__ import annotations

from typing import Any

from matplotlib import get_backend, pyplot
from matplotlib.figure import Figure

__all__ = ["ShownOnce", "new_figure"]


class ShownOnce(Figure):
    """Figure of pyplot that a notebook shows once, also where it is the last expression of a cell.

    Jupyter shows a last expression, and then all figures of pyplot that are open. This one is closed in
    pyplot as soon as it was asked for a representation.
    """

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Return nothing: IPython goes on to the picture."""
        if "inline" in get_backend():
            pyplot.close(self)
        return {}


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of pyplot; sizes in inches."""
    return pyplot.figure(FigureClass=ShownOnce, figsize=(width, height), layout="constrained")
