"""What a Spark of another release gives of two stores, as JSON: run by the Python that has it, see test_spark_versions."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from rmqctl import pipeline


def main(rocketmq: str, kafka: str) -> dict[str, Any]:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    found: dict[str, Any] = {"version": pyspark.__version__}
    pipeline.register(spark)  # an installed package is found by itself
    pipeline.counts(spark)
    found["messages"] = shown(pipeline.messages(spark, rocketmq, split_size="64K"))
    counts = pipeline.counts(spark)
    found["counts"] = counts.document() if counts else None
    found["filtered"] = shown(pipeline.messages(spark, rocketmq, where="topic = 'LabOne' and queue_id = 0"))
    found["records"] = shown(pipeline.rows(spark, kafka, format="kafkalog"))
    found["topics"] = shown(pipeline.table(spark, kafka, "topics", format="kafkalog"))
    found["has_formats"] = hasattr(spark, "dataSource")
    if found["has_formats"]:
        for format, path in (("rocketmq", rocketmq), ("kafkalog", kafka)):
            read = spark.read.format(format)
            body = {"body": "decompressed"} if format == "rocketmq" else {}
            found[f"read {format}"] = shown(read.options(**body).load(path))
            found[f"followed {format}"] = followed(spark, format, path)
        spark.sql(f"CREATE TEMPORARY VIEW m USING rocketmq OPTIONS (path '{rocketmq}', columns 'topic,size')")
        found["view"] = [
            list(row) for row in spark.sql("SELECT topic, sum(size) FROM m GROUP BY 1 ORDER BY 1").collect()
        ]
        spark.sql(f"CREATE TABLE t USING rocketmq OPTIONS (path '{rocketmq}', columns 'topic,size')")
        found["table"] = [
            list(row) for row in spark.sql("SELECT topic, sum(size) FROM t GROUP BY 1 ORDER BY 1").collect()
        ]
        spark.sql("DROP TABLE t")
    spark.stop()
    return found


def followed(spark: SparkSession, format: str, path: str) -> list[int]:
    """Rows of the batches of a stream."""
    batches: list[int] = []
    read = spark.readStream.format(format).option("columns", "topic").option("maxBytesPerTrigger", "100K")
    query = read.load(path).writeStream.foreachBatch(lambda frame, _: batches.append(frame.count())).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return batches


def shown(frame: Any) -> list[str]:
    """Rows in an order of their own, as text that tells apart what differs."""
    return sorted(repr([plain(value) for value in row]) for row in frame.select(*sorted(frame.columns)).collect())


def plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return hashlib.sha256(value).hexdigest()[:16]
    if isinstance(value, dict):
        return sorted((key, plain(one)) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return str(value)


if __name__ == "__main__":
    os.chdir(sys.argv[3])  # Spark leaves a warehouse where it stands
    print("FOUND", json.dumps(main(sys.argv[1], sys.argv[2])))
