"""The programs of docs/home-assistant.md at a real broker: what Home Assistant would see of them.

`test_docs.py` runs those that need no broker.
"""

import re
from pathlib import Path

import pytest

from aio.test_asyncio_page import running
from conftest import PYTHONS, ROOT
from flatmq_tools.broker import Broker
from ha import documented
from observer import Observer, retained

PAGE = (ROOT / "docs" / "home-assistant.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TANK, AIO = (code for code in BLOCKS if "while True" in code)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("code", [TANK, AIO], ids=["tank", "aio"])
def test_a_program(code: str, python: str, near: Broker, tmp_path: Path) -> None:
    (name,) = re.findall(r'Client\(b"(\S+)"', code)
    program = tmp_path / "program.py"
    program.write_text(
        code.replace('"192.168.1.10"', f'"{near.host}", {near.port}').replace(
            name, f"{name}-{python}"
        )
    )
    name = f"{name}-{python}"
    topic = f"homeassistant/device/{name}/config"
    output = tmp_path / "output"
    with (
        Observer(near.host, near.port, f"dev/{name}/#", topic) as hub,
        running(python, program, output),
    ):
        hub.until(lambda: b"1.234" in hub.payloads(f"dev/{name}/level"))
        message = documented.read(topic.encode(), hub.payloads(topic)[-1])
        found = message["components"]
        assert message["device"]["name"] == "Tank"
        assert found["level"]["unique_id"] == f"{name}_level"
        assert hub.payloads(f"dev/{name}/status") == [b"online"]
        if code is TANK:
            assert found["target"]["max"] == 30
            for key, command, state in (
                ("pump", "ON", b"ON"), ("lamp", "128", b"128"), ("target", "22.5", b"22.5"),
            ):  # fmt: skip
                hub.publish(found[key]["command_topic"], command)
                hub.until(lambda at=f"dev/{name}/{key}", state=state: state in hub.payloads(at))
            hub.publish(found["restart"]["command_topic"], "PRESS")
            hub.until(lambda: "restart" in output.read_text() or python == "micropython")
            assert hub.payloads(f"dev/{name}/leak") == [b"OFF"]
    assert retained(near.host, near.port, topic) == hub.payloads(topic)[-1]
