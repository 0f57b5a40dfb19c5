"""The part `logs` of a station: dev/NAME/log has what is printed, while somebody listens.

See docs/crashes.md. The work is done by flatmq.log.
"""

from flatmq.log import Log


def logs(station) -> Log:
    """Return the part. Raises what Log raises."""
    return Log(station.client, station.base + b"log")
