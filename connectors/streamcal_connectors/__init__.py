"""The connectors of streamcal: where events come from, where results go, and where state is kept.

They implement the interfaces of `streamcal.run.ports`. Connectors depend on streamcal, never the reverse.
"""
