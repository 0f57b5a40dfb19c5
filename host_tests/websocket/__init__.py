"""The client over WebSocket."""
