"""A message and a client for updates, on both interpreters, whose broker is the test."""


class Message:
    """A message in one piece, or `size` bytes of it from `at` on."""

    def __init__(self, topic, payload, at=0, size=None):
        self.topic = topic
        self.payload = payload
        self.buf = bytearray(payload)
        self.at = self.offset = at
        self.total = len(payload)
        self.end = self.total if size is None else min(at + size, self.total)
        self.last = self.end == self.total

    def __len__(self):
        return self.total

    def __getitem__(self, i):
        return self.buf[self.at + i]

    def is_topic(self, name):
        return self.topic == name


class Client:
    """A client that keeps what is published in `sent`."""

    connected = True
    five = None
    max_qos = 2
    pending = 0

    class stats:
        connects = 1

    def __init__(self):
        self.sent = []

    def subscribe(self, topics, handler, qos, chunks):
        self.handler = handler

    def no_room(self, n, qos):
        return False

    def publish(self, topic, payload, qos, retain=False):
        self.sent.append((topic, payload.encode() if isinstance(payload, str) else bytes(payload)))
        return 1

    def awaits(self, pid):
        return False

    def disconnect(self):
        pass
