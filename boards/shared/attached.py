"""Find the sensors wired to a board's pins, once at start. A pin without a sensor is fine."""


def attached(one_wire=None, dht=None, i2c=None) -> list:
    """Return the sensors that answer.

    They may be DS18B20s at the Pin `one_wire`, a DHT22 at the Pin `dht`, a BME280 on the bus
    `i2c`. Drivers are loaded only for the arguments given.
    """
    found: list = []
    if one_wire is not None:
        import ds18b20

        found.append(ds18b20.probe(one_wire))
    if dht is not None:
        import dht22

        found.append(dht22.probe(dht))
    if i2c is not None:
        import bme280

        found.append(bme280.probe(i2c))
    return [sensor for sensor in found if sensor]
