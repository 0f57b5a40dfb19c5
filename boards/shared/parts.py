"""Parts of a station that are loaded only if the setting `device.parts` names them.

A part is an object with a method `poll()`, which each turn of the station calls.
"""

from flatmq.port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from station import Station


class Parts:
    """The parts of a station whose names are given, separated by commas.

    ValueError if one is unknown.
    """

    def __init__(self, station: "Station", names: str) -> None:
        self._all = []
        for name in names.split(","):
            self._all.append(_made(station, name.strip()))

    def poll(self) -> None:
        """Have each part do what is due."""
        for part in self._all:
            part.poll()


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
    if name == "updates":
        from updates_part import updates

        return updates(station)
    raise ValueError(
        f"device.parts: {name} is not one of crashes, ha, logs, prompt, time, updates"
    )
