"""Modules that many clients never load: see `flatmq.port`."""
