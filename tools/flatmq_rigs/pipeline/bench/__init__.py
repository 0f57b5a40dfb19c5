"""Measure the pipeline and its parts, with our client and with paho-mqtt.

`messages` is what goes through, `figures` what is reported of a run; `receivers` are measured from
the broker to the log, `chains` from the broker to Parquet. `command` runs them and makes the
tables.
"""
