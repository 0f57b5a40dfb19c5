"""Parts of a station that are loaded only if the setting `device.parts` names them.

A part is an object with a method `poll()`, which each turn of the station calls.
"""

import sys

from flatmq.port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from station import Station

_ALL = ("crashes", "ha", "logs", "prompt", "time", "updates")
_FAULTS = (MemoryError, OSError)


def named(setting: str) -> list[str]:
    """Return the names in the setting, separated by commas. ValueError if one is unknown."""
    names = setting.replace(" ", "").split(",")
    for name in names:
        if name not in _ALL:
            raise ValueError(f"device.parts: {name} is not one of {', '.join(_ALL)}")
    return names


class Parts:
    """The parts of a station that the setting names.

    One that cannot be loaded is counted as failed, and the others work. ValueError if a name is
    unknown, or if a part cannot work with the station.
    """

    def __init__(self, station: "Station", setting: str) -> None:
        self._station = station
        self._names: list[str] = []
        self._all: list = []
        for name in named(setting):
            try:
                self._all.append(_made(station, name))
                self._names.append(name)
            except ValueError:
                raise
            except Exception as error:
                slots = sys.modules.get("slots")  # the board can be updated over MQTT
                if slots and slots.load()["state"] == "new":
                    raise  # the version before returns
                print(f"{name}: {error!r}")
                station.count(name)

    def poll(self) -> None:
        """Have each part do what is due. One without memory, or a flash, does not stop others."""
        i = 0
        while i < len(self._all):
            self._poll(i)
            i += 1

    # Small functions: a frame of more than eleven words would be on the heap, for every turn.

    def _poll(self, i):
        try:
            self._all[i].poll()
        except _FAULTS:
            self._count(i)

    def _count(self, i):
        self._station.count(self._names[i])


def _made(station, name):
    if name == "crashes":
        from crashes_part import crashes

        return crashes(station)
    if name == "ha":
        from ha_part import HomeAssistant

        return HomeAssistant(station)
    if name == "logs":
        from flatmq.log import Log

        return Log(station.client, station.base + b"log")
    if name == "prompt":
        from prompt_part import prompt

        return prompt(station)
    if name == "time":
        from flatmq.timesync import TimeSync

        return TimeSync(station.client, station.base + b"time")
    from updates_part import updates

    return updates(station)
