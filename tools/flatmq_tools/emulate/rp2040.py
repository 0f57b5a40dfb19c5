"""The RP2040 of a Pico W or a plain Pico, by rp2040py, with its radio."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rp2040py.boards import BoardSpec
from rp2040py.cli.socket_repl import SocketInteractiveRepl
from rp2040py.device.base_device import BaseDevice
from rp2040py.external.bootsel_button import BootselButton
from rp2040py.external.cyw43 import Cyw43439
from rp2040py.external.cyw43.bus import (
    CYW43_EV_SET_SSID,
    SDPCM_HEADER_LEN,
    GSPIBus,
)
from rp2040py.gpio_pin import GPIOPinState
from rp2040py.reset_cause import ResetCause

from . import events
from .events import report
from .gateway import Router
from .network import Network
from .order import Order

_BOOT = 120.0  # seconds of this machine's clock until the board is on its USB
_TICK = 250_000_000  # nanoseconds of the board's clock between two reports of it
_QUIET = 200_000_000  # nanoseconds of the board's clock without output, after which it is asked
_REASON = 0x40058008  # WATCHDOG: REASON (RP2040 datasheet, 4.7.6); bit 0: it ran out
_SELECT = 1  # of the QSPI pins: chip select
_THERMOMETER = 4  # the ADC's channel of the chip's temperature
_WARM = 876  # 27 °C (RP2040 datasheet, 4.9.5)
_WINDOW = 10  # frames that the board may send before an answer
_NO_NETWORKS = 3  # CYW43_STATUS_NO_NETWORKS (cyw43-driver: cyw43_ll.h)


class Air(GSPIBus):
    """The radio chip, with an access point that can go away."""

    router: Router
    _sent = 0  # frames of the board, modulo 256

    @property
    def _bus_data_credit(self) -> int:
        """The number up to which the board may send.

        Where each packet gives a credit, as in rp2040py, the number meets that of the board again
        after some 255 frames, and the driver waits in vain.
        """
        return (self._sent + _WINDOW) & 0xFF

    @_bus_data_credit.setter
    def _bus_data_credit(self, value: int) -> None:
        pass

    def power_off(self) -> None:
        """Forget everything."""
        super().power_off()
        self._sent = 0

    def _write_wlan(self, data: bytes) -> None:
        if len(data) >= SDPCM_HEADER_LEN:
            self._sent = data[4] + 1 & 0xFF
        super()._write_wlan(data)

    def lose(self, lost: bool) -> None:
        """Take the access point away, or bring it back."""
        self.router.lost = lost
        if lost:
            self.router.reset()
            self._queue_disassoc_events()
        report(wifi=not lost)

    def _queue_join_events(self) -> None:
        if self.router.lost:
            event = self._build_async_event(CYW43_EV_SET_SSID, _NO_NETWORKS)
            self.queue_rx_packet(event)
        else:
            super()._queue_join_events()


class Radio(Cyw43439):
    """The Wi-Fi chip of a Pico W."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._network = network
        self.air = self.bus = Air()

    def attach(self, rp2040: Any) -> None:
        """Connect it to the RP2040."""
        super().attach(rp2040)
        # The other pins of a chip without power are taken for a transfer, which the first start
        # of the driver after a reset finds: a chip is new when its power comes, too.
        rp2040.gpio[self._power].add_listener(self._powered)
        self.air.router = Router(rp2040, self.air.queue_rx_ethernet_frame, self._network)
        self.air.nat_bridge = self.air.router

    def _powered(self, new: GPIOPinState, old: GPIOPinState) -> None:
        if new == GPIOPinState.HIGH and old != new:
            self.air.power_off()


class Board(BaseDevice):
    """The RP2040 with its flash; it reports its resets."""

    def hard_reset(self, *, cause: ResetCause = ResetCause.RUN_PIN) -> None:
        """Reset the chip; its flash stays."""
        name = {ResetCause.RUN_PIN: "button", ResetCause.POWER_ON: "power"}.get(cause)
        if name is None:
            name = "watchdog" if self.mcu.read_uint32(_REASON) & 1 else "machine.reset()"
        report(reset=name)
        super().hard_reset(cause=cause)

    def cut_power(self) -> None:
        """Cut the power in the middle of the next write to the flash."""
        before = bytes(self.mcu.flash)

        def written(new: GPIOPinState, old: GPIOPinState) -> None:
            nonlocal before
            flash = bytes(self.mcu.flash)
            if new != GPIOPinState.HIGH or flash == before:
                return
            changed = [i for i, (a, b) in enumerate(zip(flash, before, strict=True)) if a != b]
            undone = slice(changed[len(changed) // 2], changed[-1] + 1)
            self.mcu.flash[undone] = before[undone]
            before = bytes(self.mcu.flash)
            # After the instruction that deselected the flash, as a watchdog's timeout comes.
            off.schedule(0)

        def cut() -> None:
            forget()
            self.hard_reset(cause=ResetCause.POWER_ON)

        off = self.simulator.clock.create_alarm(cut)
        forget = self.mcu.qspi[_SELECT].add_listener(written)


class Line(SocketInteractiveRepl):
    """The serial line as a TCP port; the first thing that is sent over it is reported."""

    typed = False

    def send(self, data: bytes) -> bool:
        """Send to the board."""
        if not self.typed:
            self.typed = True
            report(typed=True)
        return super().send(data)


async def run(order: Order, done: asyncio.Event) -> None:
    """Run the machine until `done`."""
    radio = Radio(Network(order.broker, order.ports))
    extras: tuple[Callable[[], Any], ...] = (BootselButton,)
    if order.wifi:
        extras += (lambda: radio,)
    board = Board(board=BoardSpec(extras=extras, image=Path(order.image)))
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def heard(data: bytes | bytearray) -> None:
        nudge.cancel()
        report(log=decoder.decode(bytes(data)))

    clock = board.simulator.clock
    events.clock = lambda: clock.nanos / 1e6
    loop = asyncio.get_running_loop()

    def tick() -> None:
        report()
        alarm.schedule(_TICK)

    board.mcu.adc.channel_values[_THERMOMETER] = _WARM
    alarm = clock.create_alarm(tick)
    alarm.schedule(_TICK)

    # What was printed before there was a USB host waits for the next output. A program that has
    # ended by then gives none, but the REPL answers.
    nudge = clock.create_alarm(lambda: board.cdc.send_serial_byte(ord("\r")))

    def plan(seconds: float, action: Callable[[], None]) -> None:
        def due() -> None:
            loop.call_soon(action)  # not within the step of the chip in which the alarm comes

        clock.create_alarm(due).schedule(seconds * 1e9)

    for at in order.resets:
        plan(at, board.hard_reset)
    for at, seconds in order.losses:
        plan(at, lambda: radio.air.lose(True))
        plan(at + seconds, lambda: radio.air.lose(False))
    for at in order.cuts:
        plan(at, board.cut_power)

    board.simulator.bind_loop()
    # For as long as that lasts the board's clock does not go faster than this machine's.
    board.simulator.real_io_begin()
    line = Line(board.cdc, board.simulator, lambda _: done.set(), port=order.port, on_data=heard)
    await line.start()
    report(serial=line.port)
    await board.astart(_BOOT)
    board.cdc.on_device_connected = lambda: nudge.schedule(_QUIET)
    nudge.schedule(_QUIET)
    while not done.is_set() and board.simulator.executing:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(done.wait(), 0.2)
    error = board.simulator.engine_room_error
    if error is not None:
        raise error
    await line.stop()
    board.stop()
