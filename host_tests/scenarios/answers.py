"""Requests and their answers, between two clients."""

from flatmq.properties import Properties

BROKER = "shared"
VERSIONS = (5,)

RESPONSE_TOPIC = 0x08
CORRELATION_DATA = 0x09


class _Responder:
    """Answers requests with their payload in capitals, by the topic that they name."""

    def __init__(self, env):
        self._client = env.client(b"responder")
        self.client = self._client
        self.asked = []
        self.holding = False
        self._held = []
        subscription = self._client.subscribe(env.name(b"ask"), self._asked, qos=1)
        self._client.start()
        env.granted(subscription, self._client)

    def _asked(self, message):
        p = message.properties
        self.asked.append(message.payload)
        self._held.append((p.get(RESPONSE_TOPIC), p.get(CORRELATION_DATA), message.payload))
        if not self.holding:
            self.answer()

    def answer(self):
        """Answer what is held back, the newest first."""
        while self._held:
            topic, data, payload = self._held.pop()
            properties = Properties(correlation_data=data)
            if self._client.publish(topic, payload.upper(), 1, properties=properties) is None:
                raise AssertionError("no room for an answer")


def each_gets_its_own(env):
    """Several requests wait at once; each handler gets the answer to its own, once.

    The answers come in whatever order.
    """
    responder = _Responder(env)
    responder.holding = True
    client = env.online(b"c", requests=3)
    answers = []

    def ask(payload):
        return client.request(
            env.name(b"ask"), payload, lambda m: answers.append((payload, m and m.payload))
        )

    for payload in (b"a", b"b", b"c"):
        env.equal(ask(payload), True, "asked")
    env.equal(ask(b"d"), False, "asked with `requests` waiting")
    env.until("all", lambda: len(responder.asked) == 3, client, responder.client)
    env.equal(answers, [], "answers before there are any")
    responder.answer()
    env.until("the answers", lambda: len(answers) == 3, client, responder.client)
    env.equal(sorted(answers), [(b"a", b"A"), (b"b", b"B"), (b"c", b"C")], "answers")
    responder.holding = False
    for _ in range(3):
        env.equal(ask(b"again"), True, "asked")
        env.until("the answer", lambda: answers[-1][0] == b"again", client, responder.client)
        env.equal(answers.pop(), (b"again", b"AGAIN"), "answer")


def nobody_answers(env):
    """The handler gets None when the time is over, and a late answer is passed over."""
    responder = _Responder(env)
    responder.holding = True
    client = env.online(b"c")
    answers = []
    began = env.ticks_ms()
    client.request(env.name(b"ask"), b"late", answers.append, timeout=1)
    env.until("the end of its time", lambda: answers, client, responder.client)
    took = env.ticks_diff(env.ticks_ms(), began)
    env.equal((answers, took >= 1000), ([None], True), f"answer after {took} ms")
    env.until("the request", lambda: responder.asked, client, responder.client)
    responder.answer()
    responder.holding = False
    heard = []
    client.request(env.name(b"ask"), b"next", lambda m: heard.append(m and m.payload))
    env.until("the answer", lambda: heard, client, responder.client)
    env.equal((answers, heard), ([None], [b"NEXT"]), "answers")
