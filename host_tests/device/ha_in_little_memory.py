"""Add components to a device with ever more memory, and again once there is enough.

It prints how often memory was too short, and how often a component was not whole afterwards.
"""

import gc

import packets
import scripted_link
from flatmq.ha import Device
from flatmq.port import load
from little_memory import empty, fill, list_of_blocks


def _sensor(device):
    device.sensor("a").set(1234, 3)


def _number(device):
    device.number("a", print, 0, 100, 1, 1)


def _update(device):
    device.update("a", "1.0", "dev/latest", print)


def _is_whole(device, add):
    (made,) = device.components
    if add == _update:
        return made.value == b"1.0"
    return made.limits if add == _number else device.text(1234, 3) == b"1.234"


def main():
    packets.speak("4")
    blocks = list_of_blocks()
    load("senml", "")  # what else needs memory is seen then
    load("ha_commands", "")
    short = wrong = 0
    for left in range(0, 3000, 32):
        for add in (_sensor, _number, _update):
            device = Device(scripted_link.made(scripted_link.Link()), "Tank")
            gc.collect()
            fill(blocks, left)
            try:
                add(device)
                empty(blocks)
            except MemoryError:
                empty(blocks)
                short += 1
                try:
                    add(device)
                except Exception:
                    wrong += 1
                    continue
            wrong += not _is_whole(device, add)
    print("SEEN", short, wrong)


main()
