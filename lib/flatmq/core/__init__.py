"""The modules that are always loaded: the engine, received messages, and routing."""
