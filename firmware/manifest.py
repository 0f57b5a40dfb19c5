# The client as frozen modules: FROZEN_MANIFEST of a MicroPython build, or included from another
# manifest with include("…/firmware/manifest.py").
metadata(
    description="An MQTT client that allocates nothing once it is running",
    version="0.1.0",
    license="MIT",
    pypi_publish="flatmq",
)

package("flatmq", base_path="../lib")
