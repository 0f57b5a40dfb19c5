"""The system's limits on the number of open connections."""

from __future__ import annotations

from ..errors import ToolError

try:
    import resource
except ImportError:  # Windows, which has no such limit
    resource = None  # type: ignore[assignment]

BESIDE = 64  # files that a process has open beside its connections


def raise_open_files(connections: int) -> None:
    """Raise the soft limit of open files if it is too low.

    Raises ToolError if the hard limit is too low as well.
    """
    if resource is None:
        return
    needed = connections + BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ToolError(
            f"{connections:,} connections need {needed:,} open files, and {hard:,} are allowed: "
            f"have the limit raised (`ulimit -n {needed}` as root, or LimitNOFILE= of a service), "
            f"or use at most {max(hard - BESIDE, 1):,}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
