"""The live page: how calibration stands now, in a browser, while the run goes on.

The run posts its status as `latest_status`, between two micro-batches; `routes` hand it to browsers,
and `server` is the HTTP server of `streamcal run --page`. The page itself is in ``static``: no build step,
and nothing from another host.
"""
