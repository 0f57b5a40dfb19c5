"""MQTT 5: a strict decoder, a scripted broker, and the client with it."""
