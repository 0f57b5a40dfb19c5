"""The packets of MQTT 3.1.1 and 5, read strictly and built, apart from the client."""
