"""What is always loaded: the engine, received messages, and routing."""
