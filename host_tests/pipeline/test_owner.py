"""The note in a table's folder of which query its batches are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flatmq_tools.pipeline.owner import claim
from flatmq_tools.pipeline.visible import SinkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_it_is_of_the_first_query(spark: SparkSession, tmp_path: Path) -> None:
    claim(str(tmp_path), "one", spark)
    claim(str(tmp_path), "one", spark)
    with pytest.raises(SinkError, match="is of query one, and this is two"):
        claim(str(tmp_path), "two", spark)
    assert json.loads((tmp_path / "_query.json").read_text()) == {"query": "one"}


def test_what_is_removed_meanwhile_is_no_hindrance(spark: SparkSession, tmp_path: Path) -> None:
    """A link to nothing can be listed but not opened, like a file that retention has removed."""
    (tmp_path / ".merge-1").symlink_to(tmp_path / "gone")
    claim(str(tmp_path), "one", spark)
    assert (tmp_path / "_query.json").exists()
