"""Images of boards' flash."""
