"""Cases of which a change needs only some: the others are for the night."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(n: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a test; all but every n-th are marked as nightly. A tuple is several arguments."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.nightly if i % n else ()
        )
        for i, case in enumerate(cases)
    ]
