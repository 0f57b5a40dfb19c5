"""esp32: the chips differ in which of these there is."""

import bench

if bench.raw_temperature is not None:

    def raw_temperature():
        bench.use("chip")
        return bench.raw_temperature

else:

    def mcu_temperature():
        bench.use("chip")
        return bench.mcu_temperature
