"""The brokers of the page, once for all tests."""

from .services import services  # noqa: F401
