"""The blocks of docs/clouds.md, by section."""

import re

from conftest import ROOT

TEXT = (ROOT / "docs" / "clouds.md").read_text()
_PARTS = re.split(r"^## (.*)$", TEXT, flags=re.MULTILINE)
SECTIONS = dict(zip(_PARTS[1::2], _PARTS[2::2], strict=True))
"""The text of each section by its title."""

AWS = "AWS IoT Core"
AZURE = "Azure IoT Hub"
GRID = "Azure Event Grid namespaces"
PASSWORDS = "HiveMQ Cloud, EMQX Serverless"
HOME = "Home Assistant"


def program(section: str) -> str:
    (found,) = re.findall(r"```python\n(.*?)```", SECTIONS[section], re.DOTALL)
    return str(found)


def commands(section: str) -> list[str]:
    (found,) = re.findall(r"```sh\n(.*?)```", SECTIONS[section], re.DOTALL)
    return str(found).splitlines()
