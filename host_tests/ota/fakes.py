"""A message and a client for updates, on both interpreters, whose broker is the test."""


class Message:
    """A message in one piece."""

    offset = 0
    last = True

    def __init__(self, topic, payload):
        self.topic = topic
        self.payload = payload
        self.buf = bytearray(payload)
        self.at = 0
        self.end = self.total = len(payload)

    def __len__(self):
        return self.total

    def __getitem__(self, i):
        return self.buf[i]

    def is_topic(self, name):
        return self.topic == name


class Client:
    """A client that keeps what is published in `sent`."""

    connected = True
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
