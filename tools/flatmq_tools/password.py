"""The password for a broker: it comes from the environment, as command lines are visible."""

PASSWORD = "FLATMQ_PASSWORD"
