"""The client over a serial line."""
