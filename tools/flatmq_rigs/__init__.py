"""Rigs that measure, check and prove the project itself. Not part of the wheel."""
