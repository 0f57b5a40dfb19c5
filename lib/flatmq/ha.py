"""A device with its components in Home Assistant 2024.11 or later, which finds it by itself.

    device = Device(client, "Tank", model="Pico W")
    level = device.sensor("level", unit_of_measurement="m", device_class="distance")
    pump = device.switch("pump", pin.value)  # called with True or False
    client.start()
    while True:
        client.poll(100)
        device.poll()
        ...
        level.set(1234, 3)  # 1.234

One retained message describes it all (MQTT device discovery). It is sent in parts, whatever its
size. These are the topics of a device with the identifier ID:

    homeassistant/device/ID/config   the message
    dev/ID/status                    the will, "offline", and "online"
    dev/ID/KEY                       the state of a component, retained
    dev/ID/KEY/set                   commands for it
"""

import random
from json import dumps

from . import Client, port
from .ha_message import Stream, checked, members
from .port import const, drop, load, ticks_add

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_BIRTH = const(b"homeassistant/status")  # Home Assistant's own, "online" whenever it has started
_FAR = const(0x3F000000)  # see `engine`
_SPREAD_BITS = const(14)  # after that up to 16 s pass, so that not all boards answer at once
_AROUND = const(45)  # bytes of a PUBLISH besides the identifier and the message, at most
_LONGEST = const(12)  # characters of a number: any small int of a board, with a point
_LIGHT = const(
    b',"bri_cmd_t":"~/set","bri_stat_t":"~","on_cmd_type":"brightness"'
    b",\"stat_val_tpl\":\"{{'OFF' if value=='0' else 'ON'}}\""
)
_WITHOUT_NUMBERS = const((b"switch", b"binary_sensor", b"button", b"update"))


class Component:
    """A component of a device, and its state. The methods of Device make them.

    `value` is the last state that was set, None until then.
    """

    platform: bytes  # as Home Assistant calls it
    key: bytes
    topic: bytes  # of its state
    command: bytes  # the topic of its commands, b"" if it takes none
    news: bool  # its state is still to be published

    def __init__(
        self, device: "Device", platform: str, key: str, on_command: "Any", fields: "bytes | None"
    ) -> None:
        self.platform = platform.encode()
        self.key = checked("key", key)
        self.topic = device.base + self.key
        self.command = self.topic + b"/set" if on_command else b""
        self.on_command = on_command
        self.value: int | bytes | None = None
        self.decimals = 0
        self.limits: tuple[int, int, int, int] | None = None  # of a number, as in `Device.number`
        self.fields = fields  # in the message; None: Home Assistant is to forget it
        self.news = False
        self.was_set = False  # since its last command came
        self._device = device

    def set(self, value: "int | bool | bytes | str | None", decimals: int = 0) -> None:
        """Set the state, which the next `poll` of the device publishes. Allocates nothing.

        True and False are ON and OFF, None is unknown, and an int is `value` / 10 **
        `decimals`, as in `senml.Pack.number`; other text is published as it is. Only the last
        state that was set before a `poll` is published.

        TypeError for another type, ValueError for a number of more than 12 characters.
        """
        if value.__class__ is str:
            value = value.encode()
        elif value.__class__ is int and self.platform not in _WITHOUT_NUMBERS:
            self._device.text(value, decimals)
        elif not (value is None or value.__class__ is bool or value.__class__ is bytes):
            kinds = "bool" if self.platform in _WITHOUT_NUMBERS else "int, bool"
            raise TypeError(f"value must be {kinds}, bytes, str or None, not {value!r}")
        self.value = value
        self.decimals = decimals
        self.was_set = self.news = self._device.news = True

    def pieces(self) -> "Iterator[bytes]":
        """Return in pieces what the message says of it, besides its platform and unique id."""
        yield b',"~":"'
        yield self.topic
        yield b'"'
        if self.platform != b"button":
            yield b',"stat_t":"~"'
        if self.command:
            yield b',"cmd_t":"~/set"'
        if self.platform == b"light":
            yield _LIGHT
        if self.fields:
            yield self.fields


class Device:
    """A device of Home Assistant, made before the client starts.

    client      a flatmq.Client; for flatmq.aio, its `core`
    name        as Home Assistant shows it
    identifier  A to Z, a to z, 0 to 9, _ and -, different for each board; the client identifier
                unless given
    base        what its topics begin with; b"dev/ID/" unless given
    online      what to publish to the topic of the will at each connection; None: the program does
    about       other fields of the device, such as model="Pico W", sw_version="1.2", or
                suggested_area="Kitchen"

    If the client has a will, its topic is that of the availability: anything but the payload of
    the will means available. Otherwise the device sets a will.

    `refused` counts commands that were not allowed. `due` is when the message is to be published;
    None: it was. ValueError for a bad identifier, a client that was started before, a will that is
    not retained, and no `online` without a will.

    Each component has a `key`, with the characters of the identifier, which is part of its topics
    and its unique id, and is its name unless `name` is given. Other fields are those of Home
    Assistant's documentation, such as `device_class`, `unit_of_measurement`, `entity_category`,
    `icon` and `name`. ValueError for a key that there is already.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        identifier: "bytes | str" = b"",
        base: bytes = b"",
        online: "bytes | None" = b"online",
        **about: "Any",
    ) -> None:
        if not isinstance(client, Client):
            raise TypeError(
                f"client must be a Client, or the core of an aio.Client, not {client!r}"
            )
        if client.state != "offline" or client.stats.connects:
            raise ValueError("client must not be started before its Device is made")
        said: Any = load("hello", "")
        client_id, _, _, will = said.parts_of(client)
        drop("hello")
        self.identifier = checked("identifier", identifier or client_id)
        self.base = base or b"dev/" + self.identifier + b"/"
        if will is None:
            if online is None:
                raise ValueError("online must be given, unless the program has set a will")
            will = self.base + b"status", b"offline", 1, True
            client.set_will(*will)
        elif not will[3]:
            raise ValueError("the will must be retained, or Home Assistant misses it")
        self.status = will[0]
        self._online = online
        template = "{{'offline' if value==" + dumps(str(will[1], "utf-8")) + " else 'online'}}"
        self.availability = dumps(template).encode()
        about["name"] = name
        self.about = members(about)
        self.components: list[Component] = []
        self.refused = 0
        self.news = False  # a component has some
        self._client = client
        self._greeted = 0  # the connection on which `online` was published
        self.due: int | None = port.ticks_ms()
        self._size = 0  # bytes of the message, once it had to wait
        self._again = False  # what else was published is to follow it
        self._senml: Any = None  # what writes numbers, once one may have to be written
        self._commands: Any = None  # what reads commands, once one may come
        self._text = memoryview(b"")
        self._texts: list[memoryview] = []  # of each length, as a slice takes heap
        client.subscribe([_BIRTH, self.base + b"+/set"], self._on_message, 1)

    # Components

    def sensor(self, key: str, **fields: "Any") -> Component:
        """Add a sensor, whose state is a number or text."""
        return self.component("sensor", key, None, **fields)

    def binary_sensor(self, key: str, **fields: "Any") -> Component:
        """Add a sensor whose state is True or False."""
        return self.component("binary_sensor", key, None, **fields)

    def switch(self, key: str, on_command: "Callable[[bool], Any]", **fields: "Any") -> Component:
        """Add a switch. `on_command(on)` is called with True or False."""
        return self.component("switch", key, on_command, **fields)

    def light(self, key: str, on_command: "Callable[[int], Any]", **fields: "Any") -> Component:
        """Add a light with brightness.

        `on_command(brightness)` is called with 0, which is off, to 255, and its state is such a
        number.
        """
        return self.component("light", key, on_command, **fields)

    def number(
        self,
        key: str,
        on_command: "Callable[[int], Any]",
        min: int,
        max: int,
        step: int = 1,
        decimals: int = 0,
        **fields: "Any",
    ) -> Component:
        """Add a number that can be set, from `min` to `max` in steps of `step`.

        These, and what `on_command(value)` is called with, are ints that stand for `value` / 10 **
        `decimals`: 215 is 21.5 if `decimals` is 1. Home Assistant knows up to 3 decimals.

        ValueError unless `min` is below `max`, and `step` at least 1.
        """
        if not (min < max and step > 0 and 0 <= decimals <= 3):
            raise ValueError(
                "min must be below max, step at least 1 and decimals 0 to 3, "
                f"not {min}, {max}, {step} and {decimals}"
            )
        for name, value in (("min", min), ("max", max), ("step", step)):
            fields[name] = value / 10**decimals if decimals else value
        limits = min, max, step, decimals  # before it is added: memory may be too short
        made = self.component("number", key, on_command, **fields)
        made.limits = limits
        return made

    def button(self, key: str, on_press: "Callable[[], Any]", **fields: "Any") -> Component:
        """Add a button. `on_press()` is called when it is pressed."""
        return self.component("button", key, on_press, **fields)

    def update(
        self,
        key: str,
        installed: "bytes | str",
        latest_topic: "bytes | str",
        on_install: "Callable[[], Any]",
        **fields: "Any",
    ) -> Component:
        """Add an update: the version that is `installed`, and the one that there is.

        The latter is a retained message on `latest_topic`. `on_install()` is called when it is to
        be installed; set the state to what is then installed. The state may also be JSON with
        `installed_version` and `update_percentage`.
        """
        fields["latest_version_topic"] = latest_topic
        fields["payload_install"] = "INSTALL"
        if isinstance(installed, str):
            installed = installed.encode()
        made = self.component("update", key, on_install, **fields)
        made.set(installed)
        return made

    def component(
        self, platform: str, key: str, on_command: "Callable[..., Any] | None", **fields: "Any"
    ) -> Component:
        """Add a component of any platform that has one topic for its state, one for commands.

        `on_command(payload)` is called with the payload of a command; what is checked for the
        platforms above is not for others, nor for a number made here. Returns the component.
        """
        fields.setdefault("name", key)
        return self.add(Component(self, platform, key, on_command, members(fields)))

    def remove(self, platform: str, key: str) -> None:
        """Have Home Assistant forget a component that an earlier program had.

        Home Assistant must be running. Saying it again does no harm: leave the call in the program
        until all boards have run it.
        """
        self.add(Component(self, platform, key, None, None))

    def add(self, made: Component) -> Component:
        """Add a component that is made, and return it."""
        old = made.topic == self.status
        for each in self.components:
            old = old or each.topic == made.topic
        if old:
            raise ValueError(f"key must be a new one, not {made.key!r}")
        if made.platform not in _WITHOUT_NUMBERS and not self._senml:
            self._text = memoryview(bytearray(_LONGEST))
            self._texts = []
            for n in range(_LONGEST + 1):
                self._texts.append(self._text[:n])
            self._senml = load("senml", "")  # last: memory may be too short
        if made.command and not self._commands:
            self._commands = load("ha_commands", "")
        self.components.append(made)
        self.announce()
        return made

    # What is published

    def announce(self) -> None:
        """Publish the message again, with the next `poll` that can.

        Needed only if what a component says in it has changed.
        """
        self._size = 0
        self.due = port.ticks_ms()

    def poll(self) -> None:
        """Publish what is due. Call it in each turn of the loop, after the client's `poll`.

        The message needs room in the queue, or a moment in which nothing else waits for an
        acknowledgement; states wait for it. Allocates nothing, unless the message is due.

        ValueError for a state that is larger than the client sends, which is not published.
        """
        c = self._client
        if not c.connected:
            return
        if self._greeted != c.stats.connects and (
            self._online is None
            or c.publish(self.status, self._online, c.max_qos and 1, True) is not None
        ):
            self._greeted = c.stats.connects
        if self.due is not None and self.due - port.ticks_ms() - 1 & _FAR and not self._describe():
            return
        if self.news:
            self._report()

    def _describe(self):
        """Hand the message to the client. Returns False if it does not take it now."""
        c = self._client
        if c.pending:  # `publish_from` takes nothing now, but the queue may have room
            if not self._size:
                n = len(self.identifier) + _AROUND
                self._size = n + Stream(self).seek(0, 2)
            if c.end + self._size > c.room or c.kept >= c.inflight:
                return False
        try:
            if Stream(self).publish(c) is None:
                return False
        except ValueError:
            print("no description")
        self.due = None
        if self._again:
            self._again = False
            self._greeted = 0
            for each in self.components:
                if each.value is not None:
                    each.news = self.news = True
        return True

    def _report(self):
        """Publish the states that are news, as long as there is room."""
        for each in self.components:
            if each.news and not self._reported(each):
                return
        self.news = False

    def _reported(self, each):
        try:
            each.news = (
                self._client.publish(
                    each.topic, self._payload(each), self._client.max_qos and 1, True
                )
                is None
            )
        except ValueError:  # it is too large, and the others follow
            each.news = False
            raise
        return not each.news

    def _payload(self, c):
        value = c.value
        if value is None:
            return b"None"
        if value.__class__ is bool:
            return b"ON" if value else b"OFF"
        return self.text(value, c.decimals) if value.__class__ is int else value

    def text(self, value: int, decimals: int) -> memoryview:
        """Return a number as text, until the next call. ValueError if it is too long."""
        n = self._senml.size_of(value, decimals)
        if n > _LONGEST:
            raise ValueError(f"value must have at most {_LONGEST} characters, not {value!r}")
        self._senml.write(self._text, n, value, decimals)
        return self._texts[n]

    # What is received

    def _on_message(self, message):
        if message.is_topic(_BIRTH):
            if message.is_payload(b"online"):
                # The broker, too, may have forgotten everything.
                self._again = True
                self.due = ticks_add(port.ticks_ms(), random.getrandbits(_SPREAD_BITS))
            return
        for each in self.components:
            if each.command and message.is_topic(each.command):
                self._obey(each, message)
                return
        self.refused += 1

    def _obey(self, c, message):
        """Carry out a command, and publish the state that it led to."""
        value = self._commands.wanted(c, message)
        if value is None:
            self.refused += 1
        elif c.platform in self._commands.PRESSES:
            c.on_command()
        else:
            c.was_set = False
            c.on_command(value)
            if not c.was_set:
                c.set(value, c.limits[3] if c.limits else 0)
