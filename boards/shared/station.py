"""Run a board with sensors: read them, publish, obey commands, blink and sleep.

    dev/NAME/telemetry   a SenML pack for each reading, at QoS 1
    dev/NAME/status      "online", "offline" (the will) or "asleep", retained; after failures
                         for example "online, failed: dht22 3, led 1"
    dev/NAME/cmd/...     commands: interval, led, identify, sleep
    dev/NAME/answer      the result of each command

See docs/sketches.md. A sensor is an object with `start()`, called a second before `read`, and
`read(pack)`, which appends its records and returns whether there was room for them.
"""

import binascii
import time

import machine

from boot_id import next_boot
from flatmq import Client
from flatmq.port import ticks_add, ticks_diff, ticks_ms
from flatmq.senml import Pack

READY_MS = 1000  # from `start` to `read` of the sensors
FLASH_MS = 50  # length of the flash with each reading
BLINK_MS = 128  # on, then off, while the board identifies itself
AWAKE_MS = 60000  # without a broker, until a board with a spool sleeps
NEWS_MS = 600000  # until the status has new counts of failures; a first one is sent at once
_LAST_SEQ = 1073741823
_DAY = 86400
_FAULTS = (MemoryError, OSError)
_ANSWERS = 16  # that wait for room; for more commands than that nothing is answered
_PORT = 1883
_TLS_PORT = 8883


class Station:
    """A board with its sensors, LED and network.

    settings   the result of settings.load
    chip       a Chip of chip_rp2 or chip_esp32; it is read as the first sensor
    sensors    a list of sensors
    led        an object with value(on), or None
    wifi       a Wifi, or None if there is a `link`
    pack       bytes for a pack; 0: enough for three records of each sensor

    `base` is what its topics begin with, b"dev/NAME/". `seq` is the number of the last reading.
    Readings that found no room are counted, too, so that a receiver sees the gap. `failed` counts
    failures by part: a sensor that cannot be read or finds no room in the pack, the LED, the
    watchdog, the spool, the clock, memory that was short, and what `parts` loads. None of
    them ends the sketch, and the status reports them. `refused` counts commands, and `lost` counts
    readings. `pack` is the last reading, and `unsent` is True while it waits for room in the
    client or the spool. `always_sleeps` is the setting `device.sleep`. Set `sleep_for` to a number
    of seconds to sleep that long as soon as everything is acknowledged.
    """

    updates = None  # the part of that name

    def __init__(self, settings, chip, sensors, led=None, wifi=None, link=None, pack=0) -> None:
        device = settings["device"]
        broker = settings["broker"]
        name = device["name"] or _own_name(chip.kind)
        self.name = name = name.encode()
        self.interval = device["interval"]
        self.seq = self.refused = self.lost = 0
        self.failed: dict[str, int] = {}
        self._news = False  # the status does not have all counts of `failed`
        self._next = self._greeted = 0  # `_greeted`: the connection on which it was published
        sensors.insert(0, chip)
        pack = pack or 128 + 144 * len(sensors)
        security = self._clock = None
        port = broker["port"]
        if not link:
            security, self._clock = _secured(broker.get("tls"))
        if security and port == _PORT:
            port = _TLS_PORT
        self.client = Client(
            name,
            broker["host"],
            port,
            user=broker["user"] or None,
            password=broker["password"] or None,
            tx_size=512 + 4 * pack,  # readings that wait for the broker
            rx_size=256,
            timeout=30 if security else 10,  # s; a TLS handshake takes a board seconds
            tls=security,
            link=link,
        )
        self.base = base = b"dev/" + name + b"/"
        self._telemetry = base + b"telemetry"
        self._status = base + b"status"
        self._answer = base + b"answer"
        self._answers: list[bytes] = []  # that wait for room
        self.client.set_will(self._status, b"offline", 1, True)
        self._error = self.client.error  # the last one printed
        self._spool = None
        self._readable = True
        if device["spool"]:
            try:
                from flatmq.spool import Spool

                self._spool = Spool(self.client, "/spool", head=chip.spool_head)
            except _FAULTS:
                self.count("spool")
        self.client.subscribe(base + b"cmd/#", self._on_command, 1)
        self.boot = next_boot()
        self.pack = Pack(name, self.boot, pack)
        self.chip = chip
        self._watched = device["watchdog"]
        self.sensors = sensors
        self._ready = bytearray(len(sensors))
        self._led = led
        self._wifi = wifi
        self._up = wifi is None
        self.always_sleeps = device["sleep"]
        self.sleep_for = 0  # s, once everything is acknowledged
        self._said_asleep = False
        self._begun = False  # the sensors are measuring
        self.unsent = False  # the pack found no room yet
        self._due = ticks_add(ticks_ms(), READY_MS)
        self._awake = self._dark = ticks_ms()
        self._known: int | None = None  # while it identifies itself, until when
        self._flash = self._lit = False
        self.led_on = False
        self._show()
        if wifi and self.always_sleeps:
            from kept import Kept

            wifi.kept = Kept(chip, self.boot)
        self._parts = None
        if device.get("parts"):
            from parts import Parts

            self._parts = Parts(self, device["parts"])

    def run(self) -> None:
        """Run until interrupted. Ctrl-C also stops the watchdog."""
        print(f"{self.name.decode()}: boot {self.boot}, {len(self.sensors)} sensors")
        if self._watched:
            try:
                self.chip.watch()
            except OSError:
                self.count("watchdog")
        self.client.start()
        short = False
        try:
            while True:
                try:
                    self.turn(20)
                    if short:  # now, as counting takes memory, too
                        short = False
                        self.count("memory")
                except MemoryError:  # of the status, for example: the next turn tries again
                    short = True
        except KeyboardInterrupt:
            self.chip.release()
            raise

    def turn(self, ms: int = 0) -> None:
        """Run the loop once. Waits up to `ms` milliseconds for incoming bytes."""
        self._feed()
        if self._parts:
            self._parts.poll()
        if not (self.sleep_for and self.client.connected):
            self._measure(ticks_ms())
        if self.unsent:
            self._send()
        self._show()
        if self._connected():
            try:
                self._poll(ms)
            except MemoryError:  # of a command, for example, which the client repeats
                self.count("memory")
        else:
            # Without Wi-Fi no name is looked up: on rp2 a lookup might never end.
            time.sleep_ms(ms)
        while self._answers and self.client.publish(self._answer, self._answers[0], 1) is not None:
            self._answers.pop(0)
        if self.client.error is not self._error:
            self._error = self.client.error
            print(self._error or "connected")
        if self.client.connected:
            self._awake = ticks_ms()
            if self._greeted != self.client.stats.connects or (
                self._news and ticks_diff(self._next, ticks_ms()) <= 0
            ):
                self._greet()
            elif self.sleep_for:
                self._doze()
        elif self.sleep_for and self._spool and self._tired():
            self._sleep()

    # Failures

    # No "as error" in what each turn calls: it makes a frame so large that it is on the heap.

    def count(self, part):
        """Count a failure of a part. The first one is printed, and reported at once."""
        if part not in self.failed:
            print(f"{part} failed")
            self.failed[part] = 0
            self._greeted = 0
        self.failed[part] += 1
        if not self._news:
            self._news = True
            self._next = ticks_add(ticks_ms(), NEWS_MS)

    def _count_sensor(self, i):
        self.count(type(self.sensors[i]).__name__.lower())

    def _feed(self):
        try:
            self.chip.feed()
        except OSError:
            self.count("watchdog")

    # Readings

    def _measure(self, now):
        left = ticks_diff(self._due, now)
        if left > READY_MS:
            return
        if not self._begun:
            self._begun = True
            for i in range(len(self.sensors)):
                self._start(i)
        if left > 0:
            return
        self._begun = False
        self._due = ticks_add(self._due, self.interval * 1000)
        if ticks_diff(self._due, now) <= 0:
            self._due = ticks_add(now, self.interval * 1000)
        if self.unsent:
            self.lost += 1
        self.seq = self.seq + 1 & _LAST_SEQ
        self.pack.begin(self.seq)
        for i in range(len(self.sensors)):
            self._read(i)
        self.unsent = True
        self._flash = True
        self._dark = ticks_add(now, FLASH_MS)

    def _start(self, i):
        self._ready[i] = 0
        try:
            self.sensors[i].start()
            self._ready[i] = 1
        except Exception:  # drivers raise exceptions of their own, and plain ones
            self._count_sensor(i)

    def _read(self, i):
        if not self._ready[i]:  # its value would be old
            return
        try:
            if self.sensors[i].read(self.pack):
                return
        except Exception:
            pass
        self._count_sensor(i)

    def _send(self):
        if not self._spooled():
            self.unsent = self.client.publish(self._telemetry, self.pack.payload(), 1) is None
        if self.always_sleeps and not self.unsent:
            self.sleep_for = self.interval

    def _spooled(self):
        """Put the pack into the spool. Returns False if there is none, or it fails."""
        if self._spool and self._readable:
            try:
                self.unsent = not self._spool.publish(self._telemetry, self.pack.payload(), 1)
                return True
            except _FAULTS:
                self.count("spool")
        return False

    # The network

    def _poll(self, ms):
        if self._spool:
            try:
                self._spool.poll(ms)
                self._readable = True
                return
            except OSError:
                self._readable = False  # what it took now would stay there
                self.count("spool")
        self.client.poll(ms)

    def _has_time(self):
        """Return whether the clock is set, if certificates need it."""
        if self._clock:
            try:
                return self._clock.poll()
            except Exception:
                self.count("clock")
                return False
        return True

    def _connected(self):
        """Return whether to poll the client: with Wi-Fi, or to notice that a connection ended."""
        if self._wifi is None:
            return True
        up = self._wifi.poll(self.client.connected)
        before, self._up = self._up, up
        if up and not before:
            self.client.ping()  # check whether the earlier connection still works
        if up and not self._has_time():
            return False  # certificates cannot be checked yet
        return up or self.client.connected

    def _greet(self):
        status = "online"
        if self.failed:
            counts = [part + " " + str(self.failed[part]) for part in sorted(self.failed)]
            status += ", failed: " + ", ".join(counts)
        if self.client.publish(self._status, status, 1, True) is not None:
            self._greeted = self.client.stats.connects
            self._said_asleep = self._news = False

    def _doze(self):
        """Sleep once everything is acknowledged, including the status "asleep"."""
        if self.unsent or self.client.pending or (self._spool and self._spool.pending):
            return
        if not self._said_asleep:
            if self.client.publish(self._status, b"asleep", 1, True) is not None:
                self._said_asleep = True
            return
        self._sleep()

    def _tired(self):
        """Return whether to sleep without a broker: the spool has all that was read."""
        if self.updates and self.updates.record["state"] == "new":
            return False  # each boot of a new version is one of its tries
        return not self.unsent and ticks_diff(ticks_ms(), self._awake) > AWAKE_MS

    def _sleep(self):
        self.client.disconnect()
        if self._spool:
            try:
                self._spool.close()
            except OSError:
                self.count("spool")
        if self._wifi:
            self._wifi.off(self.sleep_for)
        self._light(False)
        self.chip.sleep(self.sleep_for * 1000)

    # Commands

    def _on_command(self, message):
        name = message.topic[len(self.base) + 4 :]
        answer = self._obey(name, message)
        if answer is None:
            answer = b"done"
        else:
            self.refused += 1
            answer = b"refused: " + answer
        if len(self._answers) < _ANSWERS:
            self._answers.append(name[:32] + b": " + answer)

    def _obey(self, name, message):
        """Carry out a command. Returns None if it is done, else what would have been accepted."""
        value = message.number()
        if name == b"interval":
            if value is None or not 1 <= value <= _DAY:
                return b"1 to 86400 s"
            if value != self.interval:  # a retained one comes with each connection
                self.interval = value
                self._due = ticks_add(ticks_ms(), value * 1000)
                self._begun = False
        elif name == b"led":
            if not (message.is_payload(b"on") or message.is_payload(b"off")):
                return b"on or off"
            self.led_on = message.is_payload(b"on")
        elif name == b"sleep" and value == 0:
            self.sleep_for = 0
            self.always_sleeps = False
            if self._said_asleep:
                self._greeted = 0
        elif name not in (b"identify", b"sleep"):
            return b"the commands are interval, led, identify, sleep"
        elif message.retain:  # it would be obeyed again with each connection
            return b"not retained"
        elif name == b"identify":
            if len(message) and (value is None or not 1 <= value <= 600):
                return b"1 to 600 s, or nothing for 10"
            self._known = ticks_add(ticks_ms(), (value or 10) * 1000)
        elif value is None or not 1 <= value <= _DAY:
            return b"0 to 86400 s"
        else:
            self.sleep_for = value
        return None

    # The LED

    def _show(self):
        now = ticks_ms()
        if self._known is not None:
            if ticks_diff(self._known, now) <= 0:
                self._known = None
            self._light(now & BLINK_MS > 0)
            return
        if self._flash:
            self._flash = ticks_diff(self._dark, now) > 0
        self._light(self.led_on != self._flash)

    def _light(self, on):
        if self._led and on != self._lit:
            self._lit = on
            try:
                self._led.value(1 if on else 0)
            except Exception:
                self.count("led")


def _secured(table):
    """Return the TLS for the settings, and the clock that it needs, or None for either.

    Loads only what is used.
    """
    if not (table and (table["ca"] or table["pin"])):
        return None, None
    from flatmq.stream_tls import TLS

    clock = None
    if table["ca"]:
        from clock import Clock

        clock = Clock(table["ntp"])
    pin = tuple(table["pin"].split(",")) if table["pin"] else None
    return TLS(table["ca"], table["cert"], table["key"], pin), clock


def _own_name(kind):
    return kind + "-" + binascii.hexlify(machine.unique_id()).decode()
