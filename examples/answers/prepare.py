"""Verdicts of two language models and votes of people on the same pairs of answers, as one small table.

Reads three files of LLMFAO (CC BY 4.0) in a folder, and writes ``verdicts.csv`` beside this script.
The files are ``gpt4-crowd-comparisons.csv`` and ``gpt3-crowd-comparisons.csv`` of the repository
``dustalov/llmfao``, and ``llmfao.csv``, the votes of the crowd, of ``dustalov/evalica``. Run
``python examples/answers/prepare.py FOLDER``.
"""

import argparse
import csv
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAIRS = 279  # the first two questions; the second lacks its last pairs
LETTERS = {"left": "l", "right": "r", "tie": "t"}


def rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of the first pairs, in the order of the file."""
    with path.open(encoding="utf-8", newline="") as lines:
        return [row for row in csv.DictReader(lines) if int(row["id"]) < PAIRS]


def table(folder: Path) -> list[dict[str, str]]:
    """Return a row a pair: its number, the question, both verdicts, and the votes, a letter each."""
    judges = [
        {row["id"]: row for row in rows(folder / f"{name}-crowd-comparisons.csv")}
        for name in ("gpt4", "gpt3")
    ]
    votes: dict[str, str] = {}
    for row in rows(folder / "llmfao.csv"):
        votes[row["id"]] = votes.get(row["id"], "") + LETTERS[row["winner"]]
    return [
        {"pair": pair, "question": row["prompt"]}
        | {
            name: LETTERS[judge[pair]["winner"]]
            for name, judge in zip(("gpt4", "gpt35"), judges, strict=True)
        }
        | {"votes": votes[pair]}
        for pair, row in judges[0].items()
    ]


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description="Verdicts of two judges, and votes of people.")
    parser.add_argument("folder", type=Path, help="with the three files of LLMFAO")
    parser.add_argument("--output", type=Path, default=HERE / "verdicts.csv")
    options = parser.parse_args()
    with options.output.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, ["pair", "question", "gpt4", "gpt35", "votes"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table(options.folder))


if __name__ == "__main__":
    main()
