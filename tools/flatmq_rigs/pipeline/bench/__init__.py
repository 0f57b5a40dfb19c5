"""Measure the pipeline and its parts, with our client and with paho-mqtt.

`messages` is what goes through, `figures` what is reported of a run; `chains` are measured, most
of them from the broker to Delta. `command` runs them and makes the table.
"""
