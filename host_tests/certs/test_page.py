"""docs/certificates.md keeps its word."""

from __future__ import annotations

import inspect
import re

from conftest import ROOT
from flatmq_tools import certificates, probe

PAGE = (ROOT / "docs" / "certificates.md").read_text()


def test_the_texts_are_those_of_the_checks() -> None:
    sources = inspect.getsource(certificates) + inspect.getsource(probe)
    texts = re.sub(r'"\s*f?"', "", sources)
    table = PAGE.partition("## What the checks say")[2]
    rows = re.findall(r"^\| (\w[^|]+) \|", table, re.MULTILINE)[1:]
    assert len(rows) == 9
    for row in rows:
        for part in re.split(r" ?…|(?<=holds) N |, ", row):
            assert part in texts, part
