"""What `elsewhere` runs in the other package's environment: ``given.npz answer.npz``.

Updates come after every 500 labels, those of the source first. Between two updates forecasts do not change,
so a stretch is asked for in one call.
"""

import sys
import time

import numpy as np

from streamcal import StreamingIsotonicCalibrator

BATCH = 500


def main() -> None:
    given, answer = sys.argv[1:]
    with np.load(given) as kept:
        scores, order = kept["scores"], kept["order"]
        known_scores = np.concatenate((kept["source_scores"], scores[order]))
        known_labels = np.concatenate((kept["source_labels"], kept["labels"][order])).astype(int)
        # How many updates the labels have made that are known when event i is forecast.
        updates = (len(kept["source_scores"]) + kept["known"]) // BATCH
    calibrator = StreamingIsotonicCalibrator(n_bins=50, decay=0.9, prior_weight=1.0)
    forecasts = np.empty(len(scores))
    start = time.process_time()
    for update in range(int(updates[-1]) + 1):
        if update:
            batch = slice((update - 1) * BATCH, update * BATCH)
            calibrator.update(known_scores[batch], known_labels[batch])
        stretch = slice(*np.searchsorted(updates, (update, update + 1)))
        if stretch.start < stretch.stop:
            forecasts[stretch] = calibrator.calibrate(scores[stretch])
    np.savez(answer, allow_pickle=False, forecasts=forecasts, seconds=time.process_time() - start)


if __name__ == "__main__":
    main()
