# The client as frozen modules: FROZEN_MANIFEST of a MicroPython build, or included from another
# manifest with include("…/firmware/manifest.py").
import os

with open("../lib/flatmq/__init__.py") as source:
    (version,) = [line.split('"')[1] for line in source if line.startswith("__version__")]

metadata(
    description="An MQTT client that allocates nothing once it is running",
    version=version,
    license="MIT",
    pypi_publish="flatmq",
)

# Without the modules for CPython, which a board does not need. Paths are relative to this file.
desk = {"aio_cpython", "bulk_cpython", "port_cpython", "stream_cpython", "stream_tls_cpython"}
modules = [
    folder + name
    for folder in ("", "ota/", "rare/", "v5/")
    for name in sorted(os.listdir("../lib/flatmq/" + folder))
    if name.endswith(".py") and name[:-3] not in desk
]
package("flatmq", tuple(modules), base_path="../lib")
