"""River estimators that recalibrate scores while they learn.

`RecalibratedClassifier` wraps a river classifier of two classes, `MulticlassRecalibratedClassifier` one of
more; `Recalibrate` reads a score from the features. Each holds one engine of bounded memory and learns in the
domain ``target``: the stream is the deployment.
"""

from __future__ import annotations

from streamcal.river.stages import Recalibrate, RecalibratedClassifier  # first: it says what to install

from streamcal.river.many_classes import MulticlassRecalibratedClassifier  # isort: skip

__all__ = ["MulticlassRecalibratedClassifier", "Recalibrate", "RecalibratedClassifier"]
