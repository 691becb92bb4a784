"""Settings of every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A time limit per example would fail on a machine whose cores are taken, and nothing else.
settings.register_profile("streamcal", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("streamcal")
