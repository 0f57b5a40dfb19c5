"""Every command of the pages runs."""
