"""A BME280 as its registers, and its formulas in floating point to compare with.

They are those of the datasheet (BST-BME280-DS001, appendix 8.1).
"""

import struct

T = (27504, 26435, -1000)
P = (36477, -10685, 3024, 2855, 140, -7, 15500, -14600, 6000)
H = (75, 361, 0, 327, 50, 30)


def registers(pressure: int, temperature: int, humidity: int) -> bytes:
    """All 256, with what the sensor measured."""
    r = bytearray(256)
    r[0x88:0xA0] = struct.pack("<HhhHhhhhhhhh", *T, *P)
    r[0xA1] = H[0]
    r[0xD0] = 0x60
    r[0xE1:0xE4] = struct.pack("<hB", H[1], H[2])
    r[0xE4] = H[3] >> 4 & 255
    r[0xE5] = (H[3] & 15) | (H[4] & 15) << 4
    r[0xE6] = H[4] >> 4 & 255
    r[0xE7] = H[5] & 255
    r[0xF7:0xFA] = struct.pack(">I", pressure << 12)[:3]
    r[0xFA:0xFD] = struct.pack(">I", temperature << 12)[:3]
    r[0xFD:0xFF] = struct.pack(">H", humidity)
    return bytes(r)


def fine(raw: int) -> float:
    """The temperature in 1/5120 of a degree."""
    a = (raw / 16384 - T[0] / 1024) * T[1]
    b = (raw / 131072 - T[0] / 8192) ** 2 * T[2]
    return a + b


def pressure(t_fine: float, raw: int) -> float:
    """Pa."""
    a = t_fine / 2 - 64000
    b = a * a * P[5] / 32768
    b += a * P[4] * 2
    b = b / 4 + P[3] * 65536
    a = (P[2] * a * a / 524288 + P[1] * a) / 524288
    a = (1 + a / 32768) * P[0]
    p = (1048576 - raw - b / 4096) * 6250 / a
    a = P[8] * p * p / 2147483648
    b = p * P[7] / 32768
    return p + (a + b + P[6]) / 16


def humidity(t_fine: float, raw: int) -> float:
    """Percent."""
    h = t_fine - 76800
    h = (raw - (H[3] * 64 + H[4] / 16384 * h)) * (
        H[1] / 65536 * (1 + H[5] / 67108864 * h * (1 + H[2] / 67108864 * h))
    )
    h *= 1 - H[0] * h / 524288
    return min(max(h, 0), 100)
