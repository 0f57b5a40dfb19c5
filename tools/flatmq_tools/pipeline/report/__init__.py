"""A page of what a fleet published, and of what in it needs a person: `flatmq pipeline report`.

`from_state` and `from_raw` fill `figures`, `values` the measured values among them. `needs` says
what to look at; `charts` and `page` write HTML, `terminal` the same numbers as tables.
"""
