"""The state of a fleet, kept in Delta tables and computed by Spark SQL alone.

A job reads the versions of a table, and writes rows of others with its own number. No key of a
device passes the driver: it sees the names of files and their counts.
"""
