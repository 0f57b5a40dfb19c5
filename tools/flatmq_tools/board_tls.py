"""The TLS of a board: the files of this machine that go onto it, and the settings that name them.

In settings.json on the desk, and with --set, `broker.tls.ca`, `.cert` and `.key` name files of
this machine. On the board they name the files that were made of these.
"""

from __future__ import annotations

import base64
import copy
from pathlib import Path
from typing import Any

from . import trust
from .boards import Board
from .errors import ToolError
from .settings import tls

FOLDER = "/tls/"
PATHS = {"ca": f"{FOLDER}ca.der", "cert": f"{FOLDER}cert.der", "key": f"{FOLDER}key.der"}
"""Where each file is on a board."""


def prepare(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bytes], list[str]]:
    """Return the settings as the board needs them, the files that they name, and remarks.

    The files map a path on the board to bytes; each remark is one line. Nothing changes if
    `broker.tls` sets nothing. Raises ToolError and TrustError.
    """
    table = tls(settings)
    if not any(table.get(key) for key in (*PATHS, "pin")):
        return settings, {}, []
    if table.get("key") and not table.get("cert"):
        raise ToolError("broker.tls.key needs its certificate in broker.tls.cert")
    if not (table.get("ca") or table.get("pin")):
        raise ToolError(
            "broker.tls.cert needs broker.tls.ca or broker.tls.pin: the board could not "
            "distinguish its broker from another one"
        )
    if table.get("cert") and not table.get("key"):
        raise ToolError("broker.tls.cert needs its private key in broker.tls.key")
    settings = copy.deepcopy(settings)
    ready = settings["broker"]["tls"]
    files: dict[str, bytes] = {}
    remarks: list[str] = []
    if table.get("pin"):
        pins = trust.pins(str(table["pin"]), "broker.tls.pin")
        ready["pin"] = ",".join(base64.b64encode(pin).decode() for pin in pins)
    if table.get("ca") or table.get("cert"):
        files, remarks = _loaded(table)
    ready.update({key: path for key, path in PATHS.items() if table.get(key)})
    return settings, files, remarks


def prepare_for(
    board: Board, settings: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, bytes], list[str]]:
    """`prepare` for one board: without a network it gets no files. Raises ToolError."""
    found = prepare(settings)
    if found[1] and board.network != "wifi":
        settings = copy.deepcopy(settings)
        settings["broker"].pop("tls")
        remark = f"broker.tls is left out: {board.title} has no network; `flatmq bridge --ca` has"
        return settings, {}, [remark]
    return found


def _loaded(table: dict[str, Any]) -> tuple[dict[str, bytes], list[str]]:
    from . import certificates

    named = {key: f"broker.tls.{key} {table[key]}" for key in PATHS if table.get(key)}
    paths = {key: Path(table[key]).expanduser() for key in named}
    now = certificates.now()
    files: dict[str, bytes] = {}
    remarks: list[str] = []
    if "ca" in named:
        found = certificates.authority(paths["ca"], named["ca"], now)
        files[PATHS["ca"]] = found.der
        remarks += found.remarks
    if "cert" in named:
        cert, key = certificates.own(paths["cert"], paths["key"], named["cert"], named["key"], now)
        files[PATHS["cert"]] = cert.der
        files[PATHS["key"]] = key.der
        remarks += cert.remarks
    return files, remarks
