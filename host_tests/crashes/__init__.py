"""Boards that say why: crashes, logs over the broker, and the time."""
