"""Tests that need a real board: `python -m hil`. Their own tests use an emulated board."""
