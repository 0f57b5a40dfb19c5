"""A client against a model of the protocol, through a stream in memory that fails by chance."""
