"""The pipeline from broker to tables, on Spark. A package, for its conftest is not the only one."""
