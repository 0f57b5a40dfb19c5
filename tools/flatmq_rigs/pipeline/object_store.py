"""An S3 on this machine: moto, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from unittest import mock

import boto3

BUCKET = "fleet"
_SERVER = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

application = DomainDispatcherApplication(create_backend_app)
server = make_server("127.0.0.1", 0, application, threaded=True)
print(server.port, flush=True)
server.serve_forever()
"""


@contextlib.contextmanager
def store() -> Iterator[dict[str, str]]:
    """Set the environment variables of the store's users in the block, and yield them.

    The store has one bucket, which is empty.
    """
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as server:  # fmt: skip
        try:
            assert server.stdout
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            access = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
            client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **access)
            client.create_bucket(Bucket=BUCKET)
            variables = {
                "AWS_ENDPOINT_URL": url,
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": "us-east-1",
                **{name.upper(): value for name, value in access.items()},
            }
            with mock.patch.dict(os.environ, variables):
                yield variables
        finally:
            server.kill()
