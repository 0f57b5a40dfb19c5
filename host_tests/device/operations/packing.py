"""Writing SenML, and publishing it to the scripted peer."""

import packets
from flatmq.senml import Pack, label
from scripted_link import online

TOPIC = b"dev/pico-1/telemetry"
HEAD = b'[{"bn":"pico-1/","n":"boot","v":17},{"n":"seq","v":'


def numbers(proof):
    pack = Pack(b"pico-1", 17, 256)
    temperature = label(b"temp", b"Cel")
    seq = 0
    while True:
        seq += 1
        pack.begin(seq)
        written = pack.number(temperature, -1073741824)
        written = pack.number(temperature, 1073741823, 9) and written
        yield pack.number(temperature, seq - 50, 2) and written


def every_kind_of_value(proof):
    pack = Pack(b"pico-1", 17, 256)
    name = label(b"x")
    wanted = HEAD + b'7},{"n":"x","v":-0.05,"t":-1.5},{"n":"x","vb":true}'
    wanted += b',{"n":"x","vs":"\\"\\u001f\xc3\xa9"}]'
    blanks = -(len(wanted) - len(HEAD) - 3) % 8
    wanted += b" " * blanks
    while True:
        pack.begin(7)
        pack.number(name, -5, 2)
        pack.time(-15, 1)
        pack.flag(name, True)
        pack.text(name, b'"\x1f\xc3\xa9')
        yield pack.payload() == wanted


def no_room(proof):
    pack = Pack(b"pico-1", 17, 96)
    name = label(b"a-name-that-is-so-long-that-it-is-too-long")
    while True:
        pack.begin(7)
        yield not (pack.number(name, 1) or pack.flag(name, True) or pack.text(name, b"text"))


def published_with_every_length(proof):
    """The number grows from one digit to ten and shrinks again."""
    link, client = online()
    pack = Pack(b"pico-1", 17, 128)
    temperature = label(b"temp", b"Cel")
    value = 1
    while True:
        value = value * 10 if value < 100000000 else 1
        pack.begin(value)
        pack.number(temperature, value, 2)
        identifier = client.publish(TOPIC, pack.payload(), 1)
        client.poll()
        sent = link.took_any()
        link.give(packets.PUBACK.with_id(identifier))
        yield sent and client.pending == 0
