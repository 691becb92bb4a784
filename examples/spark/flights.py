"""The flights on Spark: fit engines to labelled scores, and apply their map to a column.

``python examples/spark/flights.py`` starts a Spark of this machine; ``spark-submit`` uses the cluster's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamcal.spark import learn, recalibrated

FLIGHTS = Path(__file__).parents[1] / "flights"
JUNE = 1370044800  # 1 June 2013, UTC


def fit_and_apply(spark: SparkSession, folder: Path) -> None:
    source, predictions, labels = (
        spark.read.json(str(folder / f"{name}.jsonl.gz")) for name in ("source", "predictions", "labels")
    )
    labelled = predictions.join(labels.select("id", "label", F.col("time").alias("told")), "id").persist()

    # Spring is the source; of the deployment, what was known by June.
    known = source.select("score", "label", F.lit("source").alias("domain")).unionByName(
        labelled.where(F.col("told") < JUNE).select("score", "label", F.lit("target").alias("domain"))
    )
    (engine,) = learn(known, domain="domain", mode="composite").values()
    print(engine)
    print(engine.map)
    print(
        f"certified risk: {engine.certificate.risk:.2g}, in the target {engine.certificate.target_risk:.2g}"
    )

    later = labelled.where(F.col("time") >= JUNE).withColumn("probability", recalibrated("score", engine.map))
    brier = {name: F.avg((F.col(name) - F.col("label")) ** 2) for name in ("score", "probability")}
    means = later.agg(
        F.count("*").alias("n"),
        F.avg("label").alias("late"),
        F.avg("score").alias("mean score"),
        F.avg("probability").alias("mean probability"),
        *(column.alias(f"Brier of {name}") for name, column in brier.items()),
    ).first()
    for name, value in means.asDict().items():
        print(f"{name:>22}  {value:.5g}")
    labelled.unpersist()


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("flights").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    fit_and_apply(spark, FLIGHTS)
    spark.stop()


if __name__ == "__main__":
    main()
