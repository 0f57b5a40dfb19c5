"""Print at how many milliseconds since the reset each step of a board's sketch was reached.

It is the main.py of a board, and starts the board's own one, sketch.py. The sketch's loop does not
wait, so that each step is noticed at once. The first reading begins a second after the sketch was
made, because the sensors are given that time.
"""

import time

reached = time.ticks_ms()

import station  # noqa: E402 (the time comes first)


def say(step, ms):
    print(f"step {step}: {ms} ms")


class Steps(station.Station):
    """The station that a sketch makes, which says how far it is."""

    def run(self):
        say("main.py", reached)
        say("imported and made", time.ticks_ms())
        self.steps = [
            ("Wi-Fi", lambda: not self._wifi or self._wifi.up),
            ("connected", lambda: self.client.connected),
            ("read and published", lambda: self.seq and not self.unsent),
            # A board says that it will sleep once all else is acknowledged.
            ("acknowledged", lambda: self._said_asleep or not self.client.pending),
        ]
        sleep = self.chip.sleep

        def asleep(ms):
            say("asleep", time.ticks_ms())
            sleep(ms)

        self.chip.sleep = asleep
        super().run()

    def turn(self, ms=0):
        super().turn(0 if self.steps else ms)
        while self.steps and self.steps[0][1]():
            say(self.steps.pop(0)[0], time.ticks_ms())


station.Station = Steps

import sketch  # noqa: E402, F401 (it runs)
