"""A refusal to run beside another project whose package is named ``streamcal``, too.

Installed into one folder, each has overwritten files of the other.
"""

from __future__ import annotations

from pathlib import Path


def refuse_other(folder: Path) -> None:
    """Raise ImportError if the distribution ``streamcal`` is installed in the folder of this package."""
    for other in folder.glob("streamcal-*.*-info"):
        raise ImportError(
            f"{folder} has two projects whose package is named streamcal: streamcal-engine, this one, and "
            f"{other.stem.replace('-', ' ', 1)}. Each overwrites files of the other. Uninstall both "
            "(pip uninstall streamcal streamcal-engine), then install the one that you want"
        )


refuse_other(Path(__file__).parents[2])
