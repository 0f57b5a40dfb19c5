"""`python -m flatmq_rigs.bench` is `flatmq bench`."""

from flatmq_tools.cli import bench

bench()
