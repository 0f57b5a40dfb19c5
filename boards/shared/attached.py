"""What hangs on a board's pins? Asked once, when it starts; a pin without a sensor is fine."""


def attached(one_wire=None, dht=None, i2c=None) -> list:
    """The sensors that answer: DS18B20 at the Pin `one_wire`, a DHT22 at `dht`, a BME280 on the
    bus `i2c`. Only the drivers of pins that are given are loaded."""
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
