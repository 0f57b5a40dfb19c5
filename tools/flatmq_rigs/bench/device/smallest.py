"""Connect, subscribe, publish and receive once: what must fit in the smallest heap.

`smallest.py CLIENT PORT ID [ROMFS IMAGE]`, against a real broker.
"""

import sys

from packets import TOPICS, mount, seen

if len(sys.argv) > 4:
    mount(sys.argv[4])

module = __import__("client_" + sys.argv[1])
module.load()
client = module.connect(int(sys.argv[2]), sys.argv[3].encode())
module.subscribe(client, TOPICS[0], 0)
module.publish(client, 1)
module.receive(client, 1)
print("RESULT", seen[0])
