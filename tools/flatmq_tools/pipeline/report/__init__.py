"""A page with pictures of what a fleet published: `flatmq pipeline report`.

`figures` asks Spark, `pictures` draws, `page` writes HTML, `terminal` the same numbers as tables.
"""
