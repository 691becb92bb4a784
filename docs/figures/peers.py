"""Picture of three models by three packages: ``python docs/figures/peers.py``.

The models are of scikit-learn's digits, 5 or more against less, by tenfold cross-validation. Needs
scikit-learn (extra ``sklearn``) and, in the same environment, ``pip install model-diagnostics``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
from drawing import FOLDER, canvas
from matplotlib.figure import Figure
from sklearn.calibration import CalibrationDisplay
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from streamcal import evaluate

MODELS: Final = {
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
    "random forest": RandomForestClassifier(random_state=0),
    "boosted trees": HistGradientBoostingClassifier(random_state=0),
}

Values = npt.NDArray[np.float64]


def forecasts() -> tuple[npt.NDArray[np.int64], dict[str, Values]]:
    """Return the labels, and the forecasts of each model for digits that it has not seen."""
    features, digits = load_digits(return_X_y=True)
    labels = (digits >= 5).astype(np.int64)
    found = {
        name: cross_val_predict(model, features, labels, cv=10, method="predict_proba")[:, 1]
        for name, model in MODELS.items()
    }
    return labels, found


def draw(labels: npt.NDArray[np.int64], found: dict[str, Values]) -> Figure:
    """Draw the same forecasts by each package, as it draws without options."""
    from model_diagnostics.calibration import plot_reliability_diagram

    figure = canvas(15.0, 5.4)
    left, middle, right = figure.subplots(1, 3)
    for name, p in found.items():
        CalibrationDisplay.from_predictions(labels, p, name=name, ax=left)
        evaluate(labels, p).plot(ax=right, label=name)
    plot_reliability_diagram(labels, pl.DataFrame(found), ax=middle)
    left.set_title("scikit-learn, CalibrationDisplay")
    middle.set_title("model-diagnostics, plot_reliability_diagram")
    right.set_title(f"streamcal, evaluate(…).plot(): {right.get_title()}")
    return figure


def main() -> None:
    """Draw, and say where the picture is."""
    picture = FOLDER / "peers.png"
    draw(*forecasts()).savefig(picture, dpi=80)
    print(f"{picture} is up to date")  # noqa: T201  what the command is for


if __name__ == "__main__":
    main()
