"""Calls that mypy must refuse: `make types` fails where one of these comments ignores nothing."""

from streamcal import Recalibrator, RecalibratorOptions

chosen: RecalibratorOptions = {"bins": 8, "mode": "target"}
Recalibrator(**chosen)
Recalibrator(bins=8, window=500, delta=0.05)
Recalibrator(modez="target")  # type: ignore[call-arg]
Recalibrator(bins="many")  # type: ignore[arg-type]
