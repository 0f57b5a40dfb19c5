"""The client over TLS."""
