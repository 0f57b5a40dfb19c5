"""The pipeline from a broker to tables and a report, on Spark: docs/pipeline.md."""
