"""The state of each device and boot, kept by the driver from batch to batch.

`store` is the file, `records` its tables, `groups` the arithmetic on many boots at once,
`arrivals` what a batch of packs changes, `boots` what is closed and opened again, `history` the
past, `once` the writer of a streaming query that drops copies, `tables` and `snapshots` the
tables health, devices and gaps.
"""
