"""The state of each device and boot, kept by the driver from batch to batch.

`store` is the file, `groups` the arithmetic on many boots at once, `arrivals` what a batch of
packs changes, `once` the writer of a streaming query that drops copies, `tables` and `snapshots`
the tables health, devices and gaps.
"""
