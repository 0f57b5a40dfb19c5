"""The client at MQTT 5, with the scripted broker and on a link without a network."""
