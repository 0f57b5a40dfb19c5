"""Read the board's settings from /settings.json. boards/settings.example.json has every key."""

import json

PATH = "/settings.json"

# The defaults. Text, true or false, or a number: its default, minimum and maximum.
KEYS: dict[str, dict] = {
    "device": {
        "name": "",  # in topics and packs; if empty, made from the chip's unique id
        "interval": (60, 1, 86400),  # s between two readings
        "sleep": False,  # deep sleep from one reading to the next
        "spool": False,  # keep readings on flash until the broker has them
        "watchdog": True,
        "parts": "",  # separated by commas: see parts.py
    },
    "wifi": {"ssid": "", "password": "", "country": ""},
    "broker": {
        "host": "",
        "port": (1883, 1, 65535),  # 8883 with TLS
        "user": "",
        "password": "",
        "tls": {  # with ca or pin; files on the board
            "ca": "",
            "cert": "",
            "key": "",
            "pin": "",  # several separated by commas
            "ntp": "pool.ntp.org",  # for the dates that ca checks
        },
    },
}


class SettingsError(ValueError):
    """The error for a bad setting.

    It names the key and the rule, but never the value, which might be a password.
    """


def load(*needed: str, path: str = PATH) -> dict:
    """Return the settings, with defaults for keys that the file leaves out.

    SettingsError if it cannot be used, or if a key in `needed`, such as "wifi.ssid", is
    missing or empty.
    """
    return _table(path, "", _read(path), KEYS, needed)


def _table(path, prefix, given, keys, needed):
    for key in given:
        if key not in keys:
            raise SettingsError(f"{path}: {prefix}{key} is unknown, the keys are {_names(keys)}")
    settings = {}
    for key, default in keys.items():
        name = prefix + key
        value = given.get(key)
        if isinstance(default, dict):
            if value is not None and not isinstance(value, dict):
                raise SettingsError(f"{path}: {name} must be an object in braces")
            settings[key] = _table(path, name + ".", value or {}, default, needed)
            continue
        if value is None:
            if name in needed:
                raise SettingsError(f"{path}: {name} is missing")
            value = default[0] if isinstance(default, tuple) else default
        _check(path, name, value, default)
        if value == "" and name in needed:
            raise SettingsError(f"{path}: {name} is empty")
        settings[key] = value
    return settings


def _read(path):
    try:
        with open(path) as f:
            given = json.load(f)
    except OSError:
        raise SettingsError(f"{path} is missing: copy settings.example.json there") from None
    except ValueError:
        raise SettingsError(f"{path} is not JSON") from None
    if not isinstance(given, dict):
        raise SettingsError(f"{path} must be an object in braces")
    return given


def _check(path, name, value, default):
    wants = None
    if isinstance(default, tuple):
        if type(value) is not int or not default[1] <= value <= default[2]:
            wants = f"a whole number from {default[1]} to {default[2]}"
    elif type(value) is not type(default):
        wants = "true or false" if isinstance(default, bool) else "text in quotes"
    elif name == "device.name":
        for i, c in enumerate(value.encode()):
            letter = 48 <= c <= 57 or 65 <= c <= 90 or 97 <= c <= 122
            if not letter and (i == 0 or c not in b"-:._"):
                wants = "letters, digits, and after the first one - : . _"
    elif name == "wifi.country" and value and len(value.encode()) != 2:
        wants = "two letters"  # the radio's own error is empty
    if wants:
        raise SettingsError(f"{path}: {name} must be {wants}")


def _names(keys):
    return ", ".join(sorted(keys))
