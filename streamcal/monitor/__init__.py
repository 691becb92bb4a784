"""Monitoring of a run: its status record, remarks, metrics, alarms, closing table, and the live page.

May import run and every room below it. The run posts its status as `latest_status`, between two
micro-batches; `routes` hand it to browsers, and `server` is the HTTP server of `streamcal run --page`. The
page itself is in ``static``: no build step, and nothing from another host.
"""
