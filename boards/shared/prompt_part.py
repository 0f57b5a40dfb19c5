"""The part `prompt` of a station: a prompt for who has the key of updates. See docs/updates.md."""

import json

from flatmq.prompt import Prompt
from updates_part import PATH


def prompt(station) -> Prompt:
    """Return the part. Code finds the station as `station`."""
    with open(PATH) as f:
        key = int(json.load(f)["key"], 16)
    return Prompt(station.client, station.base, key, {"station": station})
