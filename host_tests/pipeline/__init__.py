"""From the broker to tables, on Spark. A package, as its conftest is not the only one."""
