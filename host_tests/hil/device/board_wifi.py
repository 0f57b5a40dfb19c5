"""Joining a Wi-Fi, without the client."""

from time import sleep_ms, ticks_diff, ticks_ms


def station():
    import network

    return network.WLAN(network.STA_IF)


def join(ssid, password, ms):
    """Join the Wi-Fi, unless the board has; fail after so many milliseconds."""
    wlan = station()
    began = ticks_ms()
    wlan.active(True)
    if not wlan.isconnected():
        wlan.connect(ssid, password)
    while not wlan.isconnected():
        if ticks_diff(ticks_ms(), began) > ms:
            raise OSError("not joined, status " + str(wlan.status()))
        sleep_ms(20)
    print("@joined", ticks_diff(ticks_ms(), began))
