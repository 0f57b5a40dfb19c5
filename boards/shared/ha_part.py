"""A station as a device of Home Assistant: its part `ha`. See docs/home-assistant.md.

Home Assistant takes the measured values out of the telemetry: nothing more is published for them.
Only the states of the LED and of the interval have topics of their own, dev/NAME/led and
dev/NAME/interval.
"""

import json

from flatmq.ha import Component, Device
from flatmq.port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from station import Station

_OPEN = const(123)  # the brace with which a record begins
_WAKES = const(15)  # from sleep, without describing it again
_OWN = const(2)  # records that are no readings: boot and seq
_OFFERED = ("waiting", "fetching", "resetting")  # states of an update that can be taken

# A unit of SenML, that of Home Assistant, and what is measured, if Home Assistant has a word for
# it. The other units are taken as they are.
_UNITS = """\
Cel °C temperature
%RH % humidity
%EL % battery
Pa Pa pressure
lx lx illuminance
V V voltage
A A current
W W power
Hz Hz frequency
m m distance
m/s m/s speed
kg kg weight
s s duration
l L volume_storage
m3 m³ volume_storage
W/m2 W/m² irradiance
"""


class Record(Component):
    """A record of the packs, as a sensor. `kind` is what its value is called: v, vs or vb."""

    def __init__(self, part: "HomeAssistant", name: str, unit: str, kind: str) -> None:
        key = "".join(c if c.isalpha() or c.isdigit() or c in "_-" else "_" for c in name)
        Component.__init__(self, part.device, "sensor", key, None, b"")
        self._part = part
        self._name = name
        self._unit = unit
        self._kind = kind

    def pieces(self):
        """Return in pieces what the message says of it."""
        yield b',"stat_t":"'
        yield self._part.base
        yield b"telemetry\",\"val_tpl\":\"{{value_json|selectattr('n','eq','"
        yield self._name.encode()
        yield b"')|map(attribute='"
        yield self._kind.encode()
        yield b"')|first|default('None')}}\",\"exp_aft\":"
        yield str(self._part.expires).encode()
        if self._kind == "v":
            yield b',"stat_cla":"measurement"'
        if self._unit:
            unit, word = _described(self._unit)
            yield b',"unit_of_meas":"' + unit.encode()
            if word:
                yield b'","dev_cla":"' + word.encode()
            yield b'"'
        yield b',"name":"' + _shown(self._name).encode() + b'"'


class HomeAssistant:
    """The part of a `station`.

    A value is unknown while its sensor does not answer, and unavailable after three intervals and
    a minute without a reading, as when a board that sleeps has died.
    """

    def __init__(self, station: "Station") -> None:
        self._station = station
        self.base = base = station.base
        name = station.name.decode()
        self.device = device = Device(
            station.client,
            name,
            "".join(c if c.isalpha() or c.isdigit() or c in "_-" else "_" for c in name),
            base,
            None,
            model=station.chip.kind,
        )
        to = base.decode() + "cmd/"
        self._led = device.component(
            "switch", "led", None, name="LED", command_topic=to + "led", payload_on="on",
            payload_off="off",
        )  # fmt: skip
        device.component(
            "button", "identify", None, name="Identify", command_topic=to + "identify",
            payload_press="10", device_class="identify", entity_category="config",
        )  # fmt: skip
        self._interval = device.component(
            "number", "interval", None, name="Interval", command_topic=to + "interval", min=1,
            max=86400, mode="box", unit_of_measurement="s", entity_category="config",
        )  # fmt: skip
        self._names: list[str] = []  # of the records that are known
        self._seq = 0
        self._lit: bool | None = None
        self.expires = 0  # s
        self._held = 0  # s; the board is to sleep so long once the message is sent
        self._always = False
        self._update: Component | None = None  # if there is the part `updates`
        self._latest = ""  # the version that was published as the latest one
        self._wanted = False  # somebody has pressed Install
        # It was described when it was switched on.
        self._woken = station.always_sleeps and station.boot & _WAKES and station.chip.recall()

    def poll(self) -> None:
        """Do what is due. Allocates nothing, unless the message is to be published."""
        s = self._station
        if self._woken and s.always_sleeps:
            return
        if s.seq != self._seq:
            self._seq = s.seq
            self._look()
        if s.updates:
            self._offer(s.updates, s.client)
        if s.led_on != self._lit:
            self._lit = s.led_on
            self._led.set(b"on" if s.led_on else b"off")
        # What is being sent must not change.
        if s.interval != self._interval.value and not s.client.pending:
            self._interval.set(s.interval)
            self.expires = 3 * s.interval + 60
            self.device.announce()
        if not self._seq:  # no reading has shown yet which sensors there are
            return
        self.device.poll()
        self._hold(s)

    def _look(self):
        """Look for records that are new, such as those of a sensor that did not answer before."""
        records = 0
        for c in self._station.pack.payload():
            records += c == _OPEN
        if records > len(self._names) + _OWN:
            self._add(json.loads(bytes(self._station.pack.payload())))

    def _add(self, pack):
        for record in pack[_OWN:]:
            name = record["n"]
            if name not in self._names:
                kind = next(key for key in ("v", "vs", "vb") if key in record)
                try:  # noqa: SIM105 (there is no contextlib on a board)
                    self.device.add(Record(self, name, record.get("u", ""), kind))
                except ValueError:  # another one differs only in characters that are not allowed
                    pass
                self._names.append(name)  # last: without memory, it is added with a later reading

    def _offer(self, updates, client):
        """Show the version that can be installed, and have updates wait for that."""
        if self._update is None:
            self._show_updates(updates)
        offered = updates.state in _OFFERED
        if not offered:
            self._wanted = False
        offered = updates.to if offered else updates.record["version"]
        if offered != self._latest and client.connected:
            self._publish(client, offered)

    def _show_updates(self, updates):
        self._update = self.device.update(
            "program", updates.record["version"], self.base + b"ota/latest", self._install,
            name="Program", device_class="firmware", entity_category="config",
        )  # fmt: skip
        updates.ready = self._ready

    def _publish(self, client, version):
        if client.publish(self.base + b"ota/latest", version, 1, True) is not None:
            self._latest = version

    def _install(self):
        self._wanted = True

    def _ready(self):
        return "" if self._wanted else "until it is installed in Home Assistant"

    def _hold(self, s):
        """Keep the board awake until the message is sent, unless there is no broker."""
        if self.device.due is not None and s.client.connected:
            if s.sleep_for:
                self._held = s.sleep_for
                self._always = s.always_sleeps
                s.sleep_for = 0
        elif self._held:
            if s.always_sleeps or not self._always:  # else a command keeps it awake
                s.sleep_for = self._held
            self._held = 0


def _described(unit):
    """Return the unit of Home Assistant, and what it measures."""
    for line in _UNITS.splitlines():
        words = line.split()
        if words[0] == unit:
            return words[1], words[2] if len(words) > 2 else ""
    return unit, ""


def _shown(name):
    """Return the name of a record for people: "bme280/temp" is "BME280 temperature"."""
    words = []
    for word in name.split("/"):
        number = any(c.isdigit() for c in word)
        words.append(word.upper() if number else "temperature" if word == "temp" else word)
    return " ".join(words)
