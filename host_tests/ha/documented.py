"""The fields that Home Assistant documents for MQTT discovery, in its release 2025.4.

From the pages of the integration "MQTT" and of each of its platforms: "Device discovery payload",
"Supported abbreviations in MQTT discovery messages", and "Configuration variables".
"""

import json
import re
from typing import Any

import pytest

# Abbreviations, as far as they are used: in the message, in "dev", in "o".
SHORT = {
    "avty_t": "availability_topic",
    "avty_tpl": "availability_template",
    "bri_cmd_t": "brightness_command_topic",
    "bri_stat_t": "brightness_state_topic",
    "cmd_t": "command_topic",
    "cmps": "components",
    "dev": "device",
    "dev_cla": "device_class",
    "exp_aft": "expire_after",
    "o": "origin",
    "on_cmd_type": "on_command_type",
    "p": "platform",
    "stat_cla": "state_class",
    "stat_t": "state_topic",
    "stat_val_tpl": "state_value_template",
    "uniq_id": "unique_id",
    "unit_of_meas": "unit_of_measurement",
    "val_tpl": "value_template",
}
SHORT_DEVICE = {"ids": "identifiers", "mdl": "model", "mf": "manufacturer", "sw": "sw_version"}
SHORT_ORIGIN = {"sw": "sw_version", "url": "support_url"}

DEVICE = {
    "configuration_url", "connections", "hw_version", "identifiers", "manufacturer", "model",
    "model_id", "name", "serial_number", "suggested_area", "sw_version", "via_device",
}  # fmt: skip
ORIGIN = {"name", "sw_version", "support_url"}
_COMMON = (
    "availability availability_mode availability_template availability_topic device_class"
    " enabled_by_default encoding entity_category entity_picture icon json_attributes_template"
    " json_attributes_topic name object_id payload_available payload_not_available platform qos"
    " unique_id"
)
# What each platform requires, and what else it allows.
PLATFORMS = {
    "binary_sensor": ("state_topic", "expire_after force_update off_delay payload_off payload_on"
                      " value_template"),
    "button": ("command_topic", "command_template payload_press retain"),
    "light": ("command_topic", "brightness_command_topic brightness_scale brightness_state_topic"
              " brightness_value_template on_command_type optimistic payload_off payload_on retain"
              " schema state_topic state_value_template"),
    "number": ("command_topic", "command_template max min mode optimistic payload_reset retain"
               " state_topic step unit_of_measurement value_template"),
    "sensor": ("state_topic", "expire_after force_update last_reset_value_template options"
               " state_class suggested_display_precision unit_of_measurement value_template"),
    "switch": ("command_topic", "command_template optimistic payload_off payload_on retain"
               " state_off state_on state_topic value_template"),
    "update": ("", "command_topic display_precision latest_version_template latest_version_topic"
               " payload_install release_summary release_url retain state_topic title"
               " value_template"),
}  # fmt: skip


def _long(table: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    full = {names.get(key, key): value for key, value in table.items()}
    assert len(full) == len(table), f"a field twice: {sorted(table)}"
    return full


def _component(key: str, table: dict[str, Any]) -> dict[str, Any]:
    found = _long(table, SHORT)
    if set(found) == {"platform"}:  # it is removed
        return found
    base = found.pop("~", "")
    for name, value in found.items():
        if name.endswith("topic"):
            found[name] = value.replace("~", base)
    required, allowed = PLATFORMS[found["platform"]]
    assert {"unique_id", *required.split()} <= set(found), key
    unknown = set(found) - {*_COMMON.split(), *required.split(), *allowed.split()}
    assert not unknown, f"{key}: {sorted(unknown)}"
    return found


def read(topic: bytes, payload: bytes) -> dict[str, Any]:
    """Return a message with its full names and topics. AssertionError for any other message."""
    assert re.fullmatch(rb"homeassistant/device/[a-zA-Z0-9_-]+/config", topic), topic

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), pairs
        return dict(pairs)

    message = _long(json.loads(payload, object_pairs_hook=unique), SHORT)
    assert set(message) == {
        "origin", "device", "availability_topic", "availability_template", "components",
    }  # fmt: skip
    message["device"] = _long(message["device"], SHORT_DEVICE)
    message["origin"] = _long(message["origin"], SHORT_ORIGIN)
    assert {"identifiers"} <= set(message["device"]) <= DEVICE
    assert {"name"} <= set(message["origin"]) <= ORIGIN
    made = message["components"]
    message["components"] = {key: _component(key, made[key]) for key in made}
    ids = [each["unique_id"] for each in message["components"].values() if "unique_id" in each]
    assert len(set(ids)) == len(ids)
    return message


def rendered(template: str, **values: Any) -> str:
    """Return what Home Assistant makes of a template. Skips the test where there is no Jinja."""
    return str(pytest.importorskip("jinja2").Template(template).render(**values))


def available(message: dict[str, Any], status: str) -> bool:
    said = rendered(message["availability_template"], value=status)
    assert said in ("online", "offline")
    return said == "online"
