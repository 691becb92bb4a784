"""``python -m streamcal``: the command line."""

from __future__ import annotations

from streamcal.cli.app import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
