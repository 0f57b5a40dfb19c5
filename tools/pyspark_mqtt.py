"""The module in which Spark finds `format("mqtt")`.

Spark imports what is named pyspark_* and has a DefaultSource.

Nothing else is here, as each Spark session of this Python imports it once.
"""

from flatmq_tools.pipeline.source import MqttSource as DefaultSource

__all__ = ["DefaultSource"]
