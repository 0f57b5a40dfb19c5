"""An ESP32's OTA partitions and the choice of its boot loader, for both interpreters.

`cut` is called before and after each change of the flash; it may raise.
"""

BLOCK = 4096


class Flash:
    """The flash of a board that runs the image `first`. An image is one of `images`.

    A boot loader that has `rollback` starts a new image once, and again if it was marked as valid.
    `second`: whether it has a second OTA partition; None if what runs is in none either.
    """

    def __init__(self, first, images, size=1 << 17, rollback=True, second=True):
        self.images = images
        self.rollback = rollback
        self.second = second
        self.parts = {"ota_0": bytearray(b"\xff" * size)}
        if second:
            self.parts["ota_1"] = bytearray(b"\xff" * size)
        self.parts["ota_0"][: len(first)] = first
        self.chosen = self.before = self.running = "ota_0"
        self.state = "valid"
        self.cut = lambda: None

    def boot(self):
        """Choose what runs, as the boot loader does; return its image."""
        if self.state == "pending" and self.rollback:
            self.chosen, self.state = self.before, "valid"
        if self.state == "new":
            self.state = "pending"
        self.running = self.chosen
        return self.image(self.running)

    def image(self, label):
        """Return the image in a partition; None if there is none."""
        for image in self.images:
            if self.parts[label][: len(image)] == image:
                return image
        return None

    def module(self):
        flash = self

        class Partition:
            RUNNING = 1

            def __init__(self, name):
                self.label = flash.running if name == self.RUNNING else name

            def info(self):
                return 0, 16, 0, len(flash.parts[self.label]), self.label, False

            def get_next_update(self):
                if flash.second is None:
                    raise OSError(2)  # ENOENT
                others = [label for label in flash.parts if label != self.label]
                return Partition(others[0] if others else self.label)

            def readblocks(self, number, buf, offset):
                at = number * BLOCK + offset
                buf[:] = flash.parts[self.label][at : at + len(buf)]

            def ioctl(self, op, number):
                assert op == 6
                assert self.label != flash.running
                flash.cut()
                self._fill(number * BLOCK, b"\xff" * (BLOCK // 2))
                flash.cut()
                self._fill(number * BLOCK, b"\xff" * BLOCK)
                flash.cut()

            def writeblocks(self, number, buf, offset):
                at = number * BLOCK + offset
                flash.cut()
                self._fill(at, bytes(buf[: len(buf) // 2]))
                flash.cut()
                self._fill(at, bytes(buf))
                flash.cut()

            def _fill(self, at, data):
                memoryview(flash.parts[self.label])[at : at + len(data)] = data

            def set_boot(self):
                if flash.image(self.label) is None:
                    raise OSError(-5379)  # ESP_ERR_OTA_VALIDATE_FAILED
                flash.cut()
                flash.before, flash.chosen, flash.state = flash.running, self.label, "new"
                flash.cut()

            @staticmethod
            def mark_app_valid_cancel_rollback():
                flash.cut()
                flash.state = "valid"
                flash.cut()

        class Module:
            pass

        Module.Partition = Partition
        return Module
