"""Claim the folder of a table for the query whose batches it takes."""

from __future__ import annotations

import json
import uuid

from pyspark.sql import SparkSession

from . import durable
from .hadoop import file_system, local
from .layout import OWNER
from .visible import SinkError


def claim(folder: str, query: str, spark: SparkSession) -> None:
    """Note that the batches in a folder are of this query.

    Only those of one query are numbered from 0 without a number twice. Raises SinkError if the
    folder is of another query.
    """
    files, path = file_system(spark, f"{folder}/{OWNER}")
    if files.exists(path):
        with_bytes = files.open(path)
        try:
            text = bytes(with_bytes.readAllBytes()).decode()
        finally:
            with_bytes.close()
        owner = json.loads(text)["query"]
        if owner != query:
            raise SinkError(
                f"{folder} is of query {owner}, and this is {query}: go on with the "
                "checkpoint of that one, or name another folder"
            )
        return
    files, draft = file_system(spark, f"{folder}/.{OWNER}-{uuid.uuid4().hex}")
    stream = files.create(draft)
    stream.write(json.dumps({"query": query}).encode())
    stream.close()
    files.rename(draft, path)
    on_disk = local(files, path)
    if on_disk is not None:
        # Only the note: retention may remove other things in the folder meanwhile.
        for file in (on_disk, on_disk.with_name(f".{on_disk.name}.crc")):
            if file.exists():
                durable.path(file)
        durable.entry(on_disk)
        durable.entry(on_disk.parent)
