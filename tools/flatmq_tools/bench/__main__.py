"""`python -m flatmq_tools.bench` is `flatmq bench`."""

from flatmq_tools.cli import bench

bench()
