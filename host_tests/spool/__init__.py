"""The spool, on flash whose power is cut."""
