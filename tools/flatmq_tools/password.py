"""Where does the password for a broker come from? The environment: a command line is seen."""

PASSWORD = "FLATMQ_PASSWORD"
