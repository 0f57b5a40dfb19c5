"""Proofs on MicroPython that no steady path allocates."""
