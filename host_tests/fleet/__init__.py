"""A fleet of simulated boards."""
