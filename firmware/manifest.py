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
modules = [name for name in sorted(os.listdir("../lib/flatmq")) if name.endswith(".py")]
modules.remove("aio_cpython.py")
modules.remove("bulk_cpython.py")
modules.remove("port_cpython.py")
modules.remove("stream_cpython.py")
modules.remove("stream_tls_cpython.py")
package("flatmq", tuple(modules), base_path="../lib")
