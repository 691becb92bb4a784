"""River estimators that recalibrate scores while they learn.

`RecalibratedClassifier` wraps a river classifier; `Recalibrate` reads a score from the features. Each holds
one engine of bounded memory and learns in the domain ``target``: the stream is the deployment.
"""

from __future__ import annotations

from streamcal.river.stages import Recalibrate, RecalibratedClassifier

__all__ = ["Recalibrate", "RecalibratedClassifier"]
