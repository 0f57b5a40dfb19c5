"""From the broker to tables and a picture, on Spark: docs/pipeline.md. Python 3.11 or later."""
