"""Measurements and proofs of the pipeline."""
