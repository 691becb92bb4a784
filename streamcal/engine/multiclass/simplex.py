"""Label shift between K classes: eq. 13 with K weights, and the priors that it needs.

Under label shift, Q[Y=k | x] ∝ w_k P[Y=k | x] with w_k = Q[Y=k]/P[Y=k]: the density of x in class k is
P[Y=k | x] p(x)/P[Y=k], under P as under Q, so Bayes' rule under Q multiplies it by Q[Y=k]. Two classes give
eq. 13 of the paper. Target scores alone tell of Q by maximum likelihood (MLLS): Q maximises
Σ_i log Σ_k Q[k] h_k(z_i)/P[k], with h the recalibrated scores under P.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcal.base.values import Floats
from streamcal.engine.multiclass.softmax_c import normalise

_MOST_STEPS: Final = 10_000
_CLOSE: Final = 1e-12


def class_priors(counts: Floats, smoothing: Floats | float) -> Floats | None:
    """Return priors of counts of labels, float64[K], with so many more of each class; None without any."""
    total = counts + smoothing
    return total / total.sum() if total.sum() > 0.0 else None


def shifted(rows: Floats, source: Floats | None, target: Floats | None) -> Floats:
    """Return p′_k ∝ w_k p_k, eq. 13 for K classes.

    Parameters
    ----------
    rows
        probabilities under the source, float64[n, K].
    source, target
        priors, float64[K]; None: not known yet, and nothing changes. A class that the source has never shown
        keeps the weight 1.
    """
    weights = shift_weights(source, target)
    return rows if weights is None else reweighed(rows, weights)


def shift_weights(source: Floats | None, target: Floats | None) -> Floats | None:
    """Return w, float64[K], of `shifted`; None: not known yet."""
    if source is None or target is None:
        return None
    return np.divide(target, source, out=np.ones(len(source)), where=source > 0.0)


def reweighed(rows: Floats, weights: Floats) -> Floats:
    """Return rows of probabilities times weights, float64[K], divided by their sum."""
    out: Floats = rows * weights
    normalise(out, rows)
    return out


def ordered(rows: Floats, scores: Floats) -> Floats:
    """Return rows in which the class with the highest score has the highest probability.

    Where it has not, it gets what others have above a level, that at which it then is the highest: isotonic
    pooling of this class with those above it (docs/proofs/multiclass.md, proposition 3).

    Parameters
    ----------
    rows, scores
        probabilities and scores, float64[n, K]; each row keeps its sum.
    """
    out, top = rows.copy(), scores.argmax(axis=1)
    wrong = np.flatnonzero(rows.argmax(axis=1) != top)
    if not len(wrong):
        return out
    top = top[wrong]
    own = rows[wrong, top]
    others = rows[wrong]
    others[np.arange(len(wrong)), top] = -1.0
    others = -np.sort(-others, axis=1)[:, :-1]  # falling, without the top class
    counts = np.arange(2.0, others.shape[1] + 2.0)
    levels = (own[:, np.newaxis] + others.cumsum(axis=1)) / counts
    below = np.concatenate((others[:, 1:], np.full((len(wrong), 1), -1.0)), axis=1)
    first = (levels >= below).argmax(axis=1)
    level = levels[np.arange(len(wrong)), first]
    out[wrong] = np.minimum(rows[wrong], level[:, np.newaxis])
    out[wrong, top] = np.nextafter(level, 2.0)  # above its equals
    return out


def likeliest_priors(
    rows: Floats,
    source: Floats,
    labels: Floats,
    start: Floats | None = None,
    steps: int = _MOST_STEPS,
) -> Floats:
    """Return the likeliest priors of the target, float64[K], by expectation and maximisation.

    They maximise Σ_i log Σ_k Q[k] h_k(z_i)/P[k] + Σ_k n_k log Q[k]; the likelihood is concave and rises with
    every step (Saerens et al. 2002).

    Parameters
    ----------
    rows
        h(z_i), probabilities of target scores under the source, float64[n, K].
    source
        P, float64[K] > 0.
    labels
        n_k ≥ 0, so many labels of each class are evidence, too, float64[K].
    start
        Q to begin with, float64[K] > 0; None: those of the labels, with one more of each class.
    steps
        how many steps at most.
    """
    total = len(rows) + labels.sum()
    q = (labels + 1.0) / (labels + 1.0).sum() if start is None else start
    for _ in range(steps if total > 0.0 else 0):
        before = q
        q = (shifted(rows, source, q).sum(axis=0) + labels) / total
        if np.abs(q - before).max() <= _CLOSE:
            break
    return q
