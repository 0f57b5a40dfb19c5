"""From messages to tables: functions from DataFrame to DataFrame, for jobs of ours and of others.

    from flatmq_tools.pipeline.jobs import measurements, windows

    packs = measurements.packs(messages)  # as they lie in the raw table, or come from a stream
    values = measurements.values(measurements.once(packs))
    a_minute_each = windows.windows(values)

`measurements` has the dead letters, too; `parsing` reads the messages, and `columns` says what
one is.
"""
