"""Recursion of the weights, label block by label block: see `weights`."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from streamcal.values import Bytes, Floats

__all__ = ["Rates", "add_up", "move", "trust"]


class Rates(NamedTuple):
    """Constants of the recursion; `streamcal.mixture.weights` and `streamcal.multiclass.mixing` say why."""

    rate: float
    """η times the mean loss a label, where η is below its maximum of 1."""
    early: float
    """Increase of the rate at the beginning."""
    share: float
    """Part of the weights that goes back at a label as uncertain as a coin toss."""
    lead_rate: float
    """Rate of the weights of the trackers."""
    trust: float
    """First weight of the first tracker."""
    kept: float = 0.5 ** (1.0 / 2000.0)
    """Factor on the mean loss, a label."""
    coin: float = math.log(2.0)
    """Log loss of the forecast ½."""
    least: float = 1e-300
    """Loss that nothing is divided by."""
    least_trust: float = 1e-12
    """Least weight of a tracker."""


def move(
    served: Floats,
    sums: Floats,
    lead: float,
    losses: Floats,
    tracked: Floats,
    counted: Floats,
    first: Floats,
    asleep: Bytes,
    earlier: float,
    rates: Rates,
) -> float:
    """Move the weights of both trackers by log losses, in place; return the lead of the first.

    Parameters
    ----------
    served
        weights by both trackers, and behind them the weights by each, float64[3, K].
    sums
        The discounted log loss of each tracker, and the discounted number of labels, float64[3].
    lead
        lead of the first tracker: the log odds of its weight.
    losses, tracked, counted
        As in `Weights.track`.
    first
        The first weights, float64[K].
    asleep
        candidates that keep their weight, 1 or 0, uint8[K].
    earlier
        number of target labels that came before; negative: the labels are the source's.
    """
    block = 64
    rate, early, share, lead_rate, first_trust, kept_a_label, coin, least_loss, least_trust = rates
    candidates, n, kinds = losses.shape[1], losses.shape[2], losses.shape[0]
    lost, each = np.empty(candidates), served[1:]
    for start in range(0, n, block):
        end = min(start + block, n)
        known = 0.0
        for i in range(start, end):
            known += counted[i]
        product = rate
        if earlier >= 0.0:
            product = rate * (1.0 + early / (earlier + start + 0.5 * block))
        least_mean = math.inf
        returned = math.inf  # the least part of the weights that goes back
        kept = math.pow(kept_a_label, float(end - start))
        for tracker in range(2):
            kind = tracker if kinds > 1 else 0
            mean = sums[tracker] / sums[2]
            total = own = 0.0
            least = math.inf
            for k in range(candidates):
                if asleep[k]:
                    continue
                loss = 0.0
                for i in range(start, end):
                    loss += losses[kind, k, i]
                lost[k] = loss
                total += each[tracker, k]
                own += each[tracker, k] * loss
                if each[tracker, k] > 0.0:
                    least = min(least, loss)
            eta = min(1.0, product / max(mean, least_loss))
            moved = 0.0
            for k in range(candidates):
                if not asleep[k]:
                    lost[k] = each[tracker, k] * math.exp(min(eta * (least - lost[k]), 0.0))
                    moved += lost[k]
            back = 1.0 - math.pow(1.0 - share * min(1.0, mean / coin), known)
            for k in range(candidates):
                if not asleep[k]:
                    each[tracker, k] = lost[k] * (total / moved)
                each[tracker, k] += back * (first[k] - each[tracker, k])
            sums[tracker] = kept * sums[tracker] + own / total
            least_mean = min(least_mean, mean)
            returned = min(returned, back)
        ahead = 0.0
        for i in range(start, end):
            ahead += tracked[1, i]
            ahead -= tracked[0, i]
        if ahead != 0.0:
            trusted = trust(lead + min(1.0, lead_rate / max(least_mean, least_loss)) * ahead)
            trusted += (first_trust - trusted) * returned
            trusted = min(max(trusted, least_trust), 1.0 - least_trust)
            lead = math.log(trusted / (1.0 - trusted))
        sums[2] = kept * sums[2] + known
    trusted = trust(lead)
    for k in range(candidates):
        served[0, k] = trusted * each[0, k] + (1.0 - trusted) * each[1, k]
    return lead


def trust(lead: float) -> float:
    """Return the weight of the first tracker, by its log odds."""
    most = 30.0  # of one tracker over the other, in log odds
    return 1.0 / (1.0 + math.exp(min(max(-lead, -most), most)))


def add_up(losses: Floats, sums: Floats) -> None:
    """Add the losses of every candidate, the first of float64[k, K, n], to the second of ``sums``."""
    for k in range(losses.shape[1]):
        total = 0.0
        for i in range(losses.shape[2]):
            total += losses[0, k, i]
        sums[1, k] += total
