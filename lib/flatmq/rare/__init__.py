"""What is loaded when it is needed: see `flatmq.load`."""
