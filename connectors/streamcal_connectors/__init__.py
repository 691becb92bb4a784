"""Connectors of streamcal: where events come from and where results go.

The interfaces are in `streamcal.ports`; connectors depend on streamcal, never the reverse.
"""
