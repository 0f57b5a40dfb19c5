"""Modules that are loaded when they are needed: see `flatmq.port`."""
