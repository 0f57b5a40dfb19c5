"""The broker with TLS of these tests."""

from tls.secure_broker import secure  # noqa: F401
