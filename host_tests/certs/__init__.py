"""Certificates for boards and for commands: what is checked, converted, shown and trusted."""
