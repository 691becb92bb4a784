"""The processes of a Spark on this machine: which they are, and what they have used of the processor."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Final

EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_TICK: Final = os.sysconf("SC_CLK_TCK")


def executors(pid: int) -> list[int]:
    """Return the executors below a process, of ``local-cluster``."""
    return [each for each, (_, command, _) in _below(pid).items() if EXECUTOR in command]


def used(pid: int) -> Counter[str]:
    """Return the seconds of the processor that a process and all below it have used, by what they are.

    These are ``driver JVM``, ``driver Python``, ``executor JVM``, ``executor Python``. What has ended is
    counted if its parent runs; the JVM has no children but Python's workers, and on the driver executors.
    """
    found = _below(pid)
    seconds: Counter[str] = Counter()
    for parents, command, (own, ended) in found.values():
        lines = [command, *(found[parent][1] for parent in parents)]
        where = "executor" if any(EXECUTOR in line for line in lines) else "driver"
        seconds[f"{where} {'JVM' if _is_java(command) else 'Python'}"] += own
        seconds[f"{where} Python"] += ended
    return seconds


def _is_java(command: str) -> bool:
    return command.split("\0")[0].endswith("java")


def _below(pid: int) -> dict[int, tuple[list[int], str, tuple[float, float]]]:
    """Return a process and those below it: those above each, its command, its and its children's seconds."""
    children: dict[int, list[int]] = {}
    known: dict[int, tuple[str, tuple[float, float]]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            command = (folder / "cmdline").read_text()
        except OSError:  # it has ended
            continue
        each = int(folder.name)
        children.setdefault(int(after[1]), []).append(each)
        own, ended = (sum(map(int, after[at : at + 2])) / _TICK for at in (11, 13))
        known[each] = command, (own, ended)
    found, left = {}, [(pid, list[int]())]
    while left:
        each, parents = left.pop()
        if each in known:
            command, seconds = known[each]
            found[each] = parents, command, seconds
            left += [(child, [*parents, each]) for child in children.get(each, [])]
    return found
