"""The error of a command."""


class ToolError(Exception):
    """A command cannot do its work. The text is for the user: what is wrong, and what helps."""
