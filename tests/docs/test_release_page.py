"""The constants in docs/proofs/release.md are those of the code, and none is left out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "proofs" / "release.md").read_text()
MODULES = sorted(path.stem for path in (ROOT / "streamcal" / "release").glob("*.py"))
UNSAID = {"delay_laws_c._ROWS", "delay_laws_c._MARKS", "held_labels_c.UNITS", "held_labels_c.SCORE"}
"""Size of a table, and limits of integers."""


def constants(module: str) -> dict[str, float]:
    """Return the numbers that a module names; it may be compiled, so they are read from its source."""
    tree = ast.parse((ROOT / "streamcal" / "release" / f"{module}.py").read_text())
    found = {}
    for line in tree.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.value is not None:
            names = {node.id for node in ast.walk(line.value) if isinstance(node, ast.Name)}
            if ast.unparse(line.annotation) == "Final" and not names:
                value = eval(compile(ast.Expression(line.value), module, "eval"))
                if isinstance(value, int | float):
                    found[f"{module}.{line.target.id}"] = float(value)
    return found


def test_the_page_names_every_constant_with_its_value() -> None:
    said = {
        name: float(value.replace(",", ""))
        for name, value in re.findall(r"^\| `(\w+\.\w+)` \| ([\d,.]+) \|", PAGE, re.MULTILINE)
    }
    known = {name: value for module in MODULES for name, value in constants(module).items()}
    assert len(said) > 40
    assert said == {name: value for name, value in known.items() if name not in UNSAID}


def test_the_text_says_the_constants_of_the_table() -> None:
    """Those by which a reader checks a proof: a change of one must change its sentence."""
    known = {name: value for module in MODULES for name, value in constants(module).items()}
    for name, words in {
        "delay_laws_c.COHORT": r"A \*\*cohort\*\* is (\d+) predictions",
        "delay_laws_c._ZERO": r"e_j = 2\^\(\(j − (\d+)\)/4\)",
        "delay_laws_c._LEAST": r"predictions and (\d+) labels of each class have reached",
        "delay_laws_c._MEMORY": r"multiplied by 1 − r/([\d,]+), or 0",
        "delay_laws_c._TAIL": r"min\(f/\(1 − f\), (\d+)\)",
        "delay_laws_c._ON": r"on at z > (\d)\*\*",
        "delay_laws_c._OFF": r"off at z < (\d)\*\*",
        "delay_laws_c._VARIANCE": r"max\(V_j, (\d)\)",
        "completeness_c._PSEUDO": r"\(T_1 \+ π W \+ (\d)p\)",
        "completeness_c._SMOOTH": r"C_y = \(T_y \+ (\.\d) F_y\)",
        "completeness_c._ENOUGH": r"Where N̂_y < (\d+),",
        "completeness_c.COMPLETE": r"where that part exceeds (\.\d+),",
        "completeness_c._ERRORS": r"beyond (\d) standard errors\.",
        "completeness_c._HARDLY": r"h = (\.\d+) min",
        "completeness_c._SURE": r"must reach (\.\d+),",
        "label_release_c._ODD": r"At (\d+) times the age",
        "label_release_c._POWER": r"log-rank statistic exceeds (\d+),",
        "label_release_c._FIRST": r"as far as (\d+) labels of each class",
        "held_labels_c.MOST_HELD": r"At most ([\d,]+) labels are held\.",
        "first_labels._EXPECTED": r"fewer than (\d+) labels of a class are expected",
    }.items():
        (number,) = re.findall(words, " ".join(PAGE.split()))
        assert float(number.replace(",", "")) == known[name], name
