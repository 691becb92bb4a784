"""Figures of two machines: counts and names are equal, and numbers agree to 1e-9 (docs/stability.md).

The last bits of a number depend on the processor: numpy and the C library choose the code of exp and log by
it, and OpenBLAS that of a matrix product. Bits are compared within one process, or with a process beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

OLDER: Final[dict[str, str]] = {
    "OPENBLAS_CORETYPE": "Sandybridge",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA",
}
"""Environment of a process that computes as on an older processor of the same kind."""


def unlike(now: Any, then: Any, place: str = "") -> Iterator[str]:
    """Say where two JSON values differ, beyond 1e-9 of a float; now there may be further names."""
    if isinstance(then, float) and isinstance(now, float | int):
        if not math.isclose(now, then, rel_tol=1e-9, abs_tol=1e-12):
            yield f"{place}: {now!r}, not {then!r}"
    elif isinstance(then, list) and isinstance(now, list) and len(now) == len(then):
        for i, pair in enumerate(zip(now, then, strict=True)):
            yield from unlike(*pair, f"{place}[{i}]")
    elif isinstance(then, dict) and isinstance(now, dict) and now.keys() >= then.keys():
        for name, value in then.items():
            yield from unlike(now[name], value, f"{place}.{name}")
    elif now != then:
        yield f"{place}: {now!r}, not {then!r}"
