"""Programs for umqtt.simple and umqtt.robust."""
