"""The client with a scripted link."""
