"""The desk side of flatmq: the `flatmq` command and what stands behind it."""
