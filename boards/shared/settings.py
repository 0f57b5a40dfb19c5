"""What is this board to do? Reads /settings.json; boards/settings.example.json has every key."""

import json

PATH = "/settings.json"

# A string is free text, a bool is true or false, and three numbers are the default and the limits.
KEYS: dict[str, dict] = {
    "device": {
        "name": "",  # in topics and packs; made of the chip's own number when empty
        "interval": (60, 1, 86400),  # s between two readings
        "sleep": False,  # deeply from one reading to the next
        "spool": False,  # keep readings on flash until the broker has them
        "watchdog": True,
    },
    "wifi": {"ssid": "", "password": "", "country": ""},
    "broker": {"host": "", "port": (1883, 1, 65535), "user": "", "password": ""},
}


class SettingsError(ValueError):
    """Names the key and what it wants. It never holds a value: that might be a password."""


def load(*needed: str, path: str = PATH) -> dict:
    """The settings, with defaults for what the file leaves out; what is `needed`, such as
    "wifi.ssid", has to be there and not empty. SettingsError."""
    told = _read(path)
    for section in told:
        if section not in KEYS:
            raise SettingsError(f"{path}: {section} is not known, there is {_names(KEYS)}")
        if not isinstance(told[section], dict):
            raise SettingsError(f"{path}: {section} has to be an object in braces")
        for key in told[section]:
            if key not in KEYS[section]:
                known = _names(KEYS[section])
                raise SettingsError(f"{path}: {section}.{key} is not known, there is {known}")
    settings: dict = {}
    for section, keys in KEYS.items():
        settings[section] = {}
        for key, default in keys.items():
            name = f"{section}.{key}"
            value = told.get(section, {}).get(key)
            if value is None:
                if name in needed:
                    raise SettingsError(f"{path}: {name} is missing")
                value = default[0] if isinstance(default, tuple) else default
            _check(path, name, value, default)
            if value == "" and name in needed:
                raise SettingsError(f"{path}: {name} is empty")
            settings[section][key] = value
    return settings


def _read(path):
    try:
        with open(path) as f:
            told = json.load(f)
    except OSError:
        raise SettingsError(f"{path} is missing: copy settings.example.json there") from None
    except ValueError:
        raise SettingsError(f"{path} is not JSON") from None
    if not isinstance(told, dict):
        raise SettingsError(f"{path} has to be an object in braces")
    return told


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
    if wants:
        raise SettingsError(f"{path}: {name} has to be {wants}")


def _names(keys):
    return ", ".join(sorted(keys))
