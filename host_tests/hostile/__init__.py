"""Bytes that break rules, and the oracles that judge the client by them."""
