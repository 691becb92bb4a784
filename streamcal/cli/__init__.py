"""The command line. Connectors are reached through entry points only."""

from streamcal.base import only_one as _only_one  # noqa: F401  # here, too: `streamcal` may be the other's file
