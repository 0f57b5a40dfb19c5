"""Mapping files: how the messages of any fleet become measurements.

`files.load` reads mapping files, `Mapping.read` what a message says. Neither needs Spark. A module
for each question: `topics` and `paths` match, `rule` decides, `document`, `plain` and
`sparkplug` read payloads, `times` reads times. The mappings that come with flatmq are in
`shipped/`.
"""
