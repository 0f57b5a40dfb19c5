"""Types of options that several rigs share, each with one help text."""

from pathlib import Path
from typing import Annotated

import click

from flatmq_tools.common_options import OUTPUT

Results = Annotated[
    Path | None, OUTPUT, "Markdown file in which to rewrite the section with these results."
]
Messages = Annotated[int, "Number of messages to send."]
Rounds = Annotated[
    int,
    click.IntRange(1, 100),
    "Number of times to measure everything; the tables show medians.",
]
Link = Annotated[str, "Transport that flatmq connects over."]
