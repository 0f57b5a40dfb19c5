"""The fault bench: the client keeps its promises when the network and broker do not."""
