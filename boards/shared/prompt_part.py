"""The part `prompt` of a station: a prompt for who has the key of updates. See docs/updates.md."""

from flatmq.prompt import Prompt
from updates_part import said


def prompt(station) -> Prompt:
    """Return the part. Code finds the station as `station`."""
    return Prompt(station.client, station.base, said()["key"], {"station": station})
