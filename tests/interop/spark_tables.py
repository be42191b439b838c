"""Reads exported tables with Spark's own readers of Delta and Iceberg, and prints their rows; run by `test_spark_tables.py`.

Arguments: the jars of the readers with commas between, then format and path of each table. Runs in an environment without rmqctl.
"""

from __future__ import annotations

import hashlib
import json
import sys

from pyspark.sql import SparkSession

jars, *rest = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "1g")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.databricks.delta.snapshotPartitions", "1")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .getOrCreate()
)
for form, path in zip(rest[::2], rest[1::2], strict=True):
    table = spark.read.format(form).load(path)
    rows = [
        [row["physical_offset"], row["topic"], row["queue_id"], row["size"], hashlib.sha256(row["body"]).hexdigest()]
        for row in table.orderBy("physical_offset").collect()
    ]
    few = table.where("topic = 'LabOrders'").count()
    print("FOUND" + json.dumps({"format": form, "rows": rows, "orders": few}))
spark.stop()
