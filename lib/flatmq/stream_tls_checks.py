"""Check the arguments of `stream_tls.TLS`. Loaded for that call."""


def check(ca, cert, key, pin, server_hostname, insecure, reserve) -> None:
    """Raise ValueError or TypeError for an argument that breaks its rule."""
    if not (ca or pin or insecure):
        raise ValueError(
            "TLS needs ca, the certificate of the authority that signed the broker's, or pin, "
            "the SHA-256 of the broker's public key (insecure=True verifies nothing)"
        )
    if insecure and (ca or pin):
        raise ValueError("insecure must be False with ca or pin, not True")
    if bool(cert) != bool(key):
        raise ValueError("cert and key must be given together, not one of them")
    for name, value in (("ca", ca), ("cert", cert), ("key", key)):
        if value and not isinstance(value, (str, bytes, bytearray, memoryview)):
            kind = type(value).__name__  # a key is not shown
            raise TypeError(f"{name} must be bytes or the path of a file, not {kind}")
    if not isinstance(server_hostname or "", str):
        raise TypeError(f"server_hostname must be str, not {server_hostname!r}")
    if reserve not in (None, False, True) and (not isinstance(reserve, int) or reserve < 4096):
        raise ValueError(f"reserve must be a bool or at least 4096 bytes, not {reserve!r}")
