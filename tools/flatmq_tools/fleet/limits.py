"""The system's limits on the number of open connections."""

from __future__ import annotations

try:
    import resource
except ImportError:  # Windows, which has no such limit
    resource = None  # type: ignore[assignment]

BESIDE = 64  # files that a process has open beside its connections


class LimitError(RuntimeError):
    """This process may not open that many files, and cannot change that by itself.

    The text has the number that is needed.
    """


def raise_open_files(connections: int) -> None:
    """Raise the soft limit of open files if it is too low.

    Raises LimitError if the hard limit is too low as well.
    """
    if resource is None:
        return
    needed = connections + BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise LimitError(
            f"{connections:,} connections need {needed:,} open files, and {hard:,} are allowed: "
            f"have the limit raised (`ulimit -n {needed}` as root, or LimitNOFILE= of a service), "
            f"or use at most {max(hard - BESIDE, 1):,}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
