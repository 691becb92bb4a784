"""Estimation of rates from positives that come late, while negatives are never reported.

See `docs/architecture.md`.
"""
