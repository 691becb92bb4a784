"""Calls that mypy must refuse: `make types` fails where one of these comments ignores nothing."""

from streamcal import Recalibrator, RecalibratorOptions


def calls() -> None:
    """Call with options that are right, and with two that are wrong."""
    chosen: RecalibratorOptions = {"bins": 8, "mode": "target"}
    Recalibrator(**chosen)
    Recalibrator(bins=8, window=500, delta=0.05)
    Recalibrator(modez="target")  # type: ignore[call-arg]
    Recalibrator(bins="many")  # type: ignore[arg-type]
