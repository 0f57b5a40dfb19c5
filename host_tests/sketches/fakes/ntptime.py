"""ntptime, which sets the clock of the bench."""

import bench

host = "pool.ntp.org"


def settime():
    bench.asked.append(host)
    bench.use("ntp")
    if not bench.ntp:
        raise OSError(110)
    bench.year = 2026


class Time:
    """A replacement for the module time, in a module that looks at the year."""

    @staticmethod
    def gmtime():
        return (bench.year, 1, 1, 0, 0, 0, 0, 1)
