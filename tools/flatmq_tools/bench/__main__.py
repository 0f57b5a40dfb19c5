"""`python -m flatmq_tools.bench`."""

from flatmq_tools.bench import command

command()
