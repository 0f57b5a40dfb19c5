"""From messages to tables: functions from DataFrame to DataFrame, for jobs of ours and of others.

    from flatmq_tools.pipeline.jobs import health, measurements, windows

    packs = measurements.packs(messages)  # as they lie in the raw table, or come from a stream
    values = measurements.values(measurements.once(packs))
    a_minute_each = windows.windows(values)
    per_boot = health.health(messages)

A module for each table: `raw`, `measurements` (with the dead letters), `windows`, `health`.
`columns` says what a message is.
"""
