"""Devices of Home Assistant: what a board publishes for it, and Home Assistant itself."""
