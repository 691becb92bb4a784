"""Backtests for notebooks, over data frames of pandas, polars or Arrow; needs the extra ``frames``."""

from __future__ import annotations

from streamcal.frames.backtest import backtest
from streamcal.frames.results import Backtest

__all__ = ["Backtest", "backtest"]
