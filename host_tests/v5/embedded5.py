"""Gone: `flatmq_tools.broker.embedded(version=5)`; this name stays until nothing imports it."""

from flatmq_tools.broker import embedded


def Embedded5():
    return embedded(version=5)
