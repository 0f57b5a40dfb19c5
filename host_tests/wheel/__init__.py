"""The wheel and the sdist, installed."""
