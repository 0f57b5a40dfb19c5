"""Programs of several tasks. Each public function is a scenario."""

import asyncio
import sys

from flatmq import aio
from flatmq.aio import Client


def _of(core, name):
    return getattr(core if hasattr(core, name) else core.load(), name)


async def _collect(queue, into, count, pause=0.0, close=True):
    """Take that many messages, as (topic, payload, qos, retain)."""
    async for m in queue:
        into.append((m.topic, m.payload, m.qos, m.retain))
        if len(into) >= count:
            break
        if pause:
            await asyncio.sleep(pause)
    if close:
        queue.close()


async def _payloads(queue, count, pause=0.0, close=True):
    """Take that many messages, and return their payloads."""
    taken = []
    await _collect(queue, taken, count, pause, close)
    return [m[1] for m in taken]


async def _cancelled(task):
    """Cancel a task, and wait for its end. Returns whether it was cancelled."""
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


async def _raises(env, kind, call, *arguments):
    """Fail unless a call, or what it returns, raises that; return the exception."""
    try:
        await env.soon(call(*arguments))
    except kind as e:
        return e
    raise AssertionError("nothing was raised")


async def publish_from_several_tasks(env):
    """Eight tasks publish at once at each QoS, with room for less than half of it.

    Everything arrives, each call returns, and nothing is left pending.
    """
    async with env.client(b"p", inflight=3, tx_size=128) as client:
        inbox = []
        # Room for all: at QoS 0 a full queue loses messages.
        queue = client.subscribe(env.name(b"many/#"), qos=2, queue=8 * 6)
        await env.granted(queue)
        reading = asyncio.create_task(_collect(queue, inbox, 8 * 6))

        async def publish(i):
            for k in range(6):
                await client.publish(env.name(b"many/%d" % i), b"%d.%d" % (i, k), qos=k % 3)

        await env.soon(asyncio.gather(*[publish(i) for i in range(8)]))
        await env.soon(reading)
        env.equal(client.core.pending, 0, "records in use")
        wanted = sorted(b"%d.%d" % (i, k) for i in range(8) for k in range(6))
        env.equal(sorted(m[1] for m in inbox), wanted, "payloads")
        for i in range(8):  # each task's own messages of one QoS in order
            mine = [m[1] for m in inbox if m[0] == env.name(b"many/%d" % i) and m[2] == 1]
            env.equal(mine, [b"%d.1" % i, b"%d.4" % i], "order")


async def messages_at_each_qos(env):
    """`async for` yields topic, payload, QoS and RETAIN.

    publish() returns after the broker has the message.
    """
    async with env.client(b"c") as client:
        topic = env.name(b"each")
        await client.publish(topic, "kept", qos=1, retain=True)
        inbox = []
        queue = client.subscribe(topic, qos=2)
        reading = asyncio.create_task(_collect(queue, inbox, 4))
        await env.until("the retained one", lambda: inbox)
        for qos in range(3):
            await env.soon(client.publish(topic, b"at %d" % qos, qos))
            env.equal(client.core.pending, 0, "records in use")
        await env.soon(reading)
        wanted = [(topic, b"kept", 1, 1)] + [(topic, b"at %d" % q, q, 0) for q in range(3)]
        env.equal(inbox, wanted, "messages")
        await client.publish(topic, b"", qos=1, retain=True)


async def a_handler_as_well(env):
    """A subscription with a handler, beside a queue that gets the same messages."""
    async with env.client(b"h") as client:
        seen = []
        made = client.subscribe(env.name(b"both"), lambda m: seen.append(m.payload), 1)
        queue = client.subscribe(env.name(b"+"), qos=1)
        await env.until("SUBACK", lambda: made.granted)
        await env.granted(queue)
        reading = asyncio.create_task(_payloads(queue, 2))
        await client.publish(env.name(b"both"), b"1", 1)
        await client.publish(env.name(b"both"), b"2", 1)
        env.equal(await env.soon(reading), [b"1", b"2"], "queue")
        env.equal(seen, [b"1", b"2"], "handler")


async def a_handler_that_raises_ends_run(env):
    """A handler's exception comes out of run() and of the calls that wait.

    The next run() delivers the message again.
    """
    client = env.client(b"r")
    seen = []

    def handle(message):
        seen.append(message.payload)
        if len(seen) == 1:
            raise KeyError("first")

    client.subscribe(env.name(b"raise"), handle, 1)
    queue = client.subscribe(env.name(b"never"))
    running = asyncio.create_task(client.run())
    await env.soon(client.connected())
    waiting = asyncio.create_task(_collect(queue, [], 1))
    losing = asyncio.create_task(client.lost())
    sending = asyncio.create_task(client.publish(env.name(b"raise"), b"x", 1))
    await env.until("the exception", running.done)
    for task in (running, waiting, losing):
        env.equal((await _raises(env, KeyError, lambda t=task: t)).args[0], "first", "exception")
    await asyncio.gather(sending, return_exceptions=True)  # acknowledged before, or not
    running = asyncio.create_task(client.run())
    await env.until("the message again", lambda: len(seen) == 2)
    env.equal(seen, [b"x", b"x"], "payloads")
    await env.soon(client.disconnect())
    await env.soon(running)


async def an_exception_outlasts_disconnect(env):
    """The exception that ended run() is raised after disconnect(), too."""
    client = env.client(b"late")

    def handle(message):
        raise KeyError("late")

    client.subscribe(env.name(b"late"), handle)
    running = asyncio.create_task(client.run())
    await env.soon(client.connected())
    await env.soon(client.publish(env.name(b"late")))
    await env.until("the exception", running.done)
    await env.soon(client.disconnect())
    for late in (lambda: running, client.connected, lambda: client.publish(env.name(b"late"))):
        env.equal((await _raises(env, KeyError, late)).args[0], "late", "exception")


async def cancel_everything(env):
    """Each await is cancelled once, and everything works afterwards."""
    client = env.client(b"x", inflight=2, tx_size=128)
    topic = env.name(b"cancel")
    queue = client.subscribe(topic, qos=1)
    # Before run(): waiting for a connection, an acknowledgement, room, the lock, a message.
    waiting = [asyncio.create_task(client.connected())]
    waiting += [asyncio.create_task(client.publish(topic, b"%d" % i, 1)) for i in range(5)]
    waiting.append(asyncio.create_task(_collect(queue, [], 1)))
    await asyncio.sleep(0.02)
    env.equal(client.core.pending, 2, "accepted")
    for task in waiting:
        env.equal(await _cancelled(task), True, "cancelled")
    env.equal(client.publishing, [], "waiting in publish")
    running = asyncio.create_task(client.run())
    await env.soon(client.connected())
    # What was accepted arrives all the same, what waited for room does not.
    accepted = await env.soon(_payloads(queue, 2, close=False))
    env.equal(accepted, [b"0", b"1"], "accepted before the cancellation")
    # run() itself: the connection stays, and another run() goes on with it.
    env.equal(await _cancelled(running), True, "run was cancelled")
    sending = asyncio.create_task(client.publish(topic, b"later", 1))
    await asyncio.sleep(0.02)
    env.equal(sending.done(), False, "acknowledged by nobody")
    connects = client.core.stats.connects
    running = asyncio.create_task(client.run())
    await env.soon(sending)
    env.equal(client.core.stats.connects, connects, "connections")
    later = await env.soon(_payloads(queue, 1, close=False))
    env.equal(later, [b"later"], "after another run")
    # A consumer at random moments: nothing that it has not been given is lost.
    inbox = []
    for i in range(20):
        reading = asyncio.create_task(_collect(queue, inbox, 1000, close=False))
        sending = asyncio.create_task(client.publish(topic, b"%d" % i, 1))
        await asyncio.sleep(0.001 * (i % 5))
        await _cancelled(reading)
        await env.soon(sending)
    reading = asyncio.create_task(_collect(queue, inbox, 1000, close=False))
    await env.until("all of them", lambda: len(inbox) >= 20)
    await _cancelled(reading)
    env.equal([m[1] for m in inbox], [b"%d" % i for i in range(20)], "each of them once")
    leaving = asyncio.create_task(client.disconnect())
    await asyncio.sleep(0)
    await _cancelled(leaving)
    await env.soon(client.disconnect())
    await env.soon(running)
    error = await _raises(env, env.MQTTError, client.publish, topic)
    env.equal(error.kind, "closed", "kind")


async def slow_consumer(env):
    """A full queue holds back what comes at QoS 1 and 2, and counts what it loses at QoS 0."""
    async with env.client(b"slow", keepalive=60) as client, env.client(b"fast") as sender:
        for qos in (1, 2):
            topic = env.name(b"slow%d" % qos)
            queue = client.subscribe(topic, qos=qos, queue=2)
            await env.granted(queue)
            reading = asyncio.create_task(_payloads(queue, 30, pause=0.01))
            for i in range(30):
                await env.soon(sender.publish(topic, b"%d" % i, qos))
            env.equal(await env.soon(reading), [b"%d" % i for i in range(30)], "payloads")
            env.equal(queue.lost, 0, "lost")
        topic = env.name(b"slow0")
        queue = client.subscribe(topic, queue=2)
        await env.granted(queue)
        for i in range(10):
            await sender.publish(topic, b"%d" % i)
        await env.until("the loss", lambda: queue.lost == 8)
        env.equal(await env.soon(_payloads(queue, 2)), [b"0", b"1"], "payloads")


async def a_full_queue_outlives_the_keep_alive(env):
    """A task that takes longer for a message than the broker waits for a sign of life."""
    async with env.client(b"alive", keepalive=1) as client, env.client(b"fast") as sender:
        topic = env.name(b"alive")
        queue = client.subscribe(topic, qos=1, queue=1)
        await env.granted(queue)
        reading = asyncio.create_task(_payloads(queue, 4, pause=2.0))
        for i in range(4):  # in one read, or several
            await env.soon(sender.publish(topic, b"%d" % i, 1))
        env.equal(await env.soon(reading), [b"0", b"1", b"2", b"3"], "payloads")
        env.equal(client.core.stats.losses, 0, "losses")


async def _through_cuts(env, queue_size, pause):
    """Cut the connections of a sender and of a reader again and again.

    At QoS 2 everything arrives once and in order, at QoS 1 at least once, and subscriptions are
    kept.
    """
    kept = {"clean_session": False}
    async with env.client(b"reads", **kept) as client, env.client(b"sends", **kept) as sender:
        for qos in (1, 2):
            topic = env.name(b"cuts%d" % qos)
            queue = client.subscribe(topic, qos=qos, queue=queue_size)
            await env.granted(queue)
            inbox = []
            reading = asyncio.create_task(_collect(queue, inbox, 1000, pause=pause))
            for i in range(40):
                if i % 8 == 7:  # a cut of a connection that is not there cuts nothing
                    await env.until("the reader is back", lambda: client.core.connected)
                sending = asyncio.create_task(sender.publish(topic, b"%d" % i, qos))
                if i % 8 == 7:
                    await asyncio.sleep(0.001 * i)
                    env.ask("cut")
                    await env.soon(client.lost())
                await env.soon(sending)
            await env.until("all of them", lambda box=inbox: len({m[1] for m in box}) == 40)
            if qos == 2:
                env.equal([m[1] for m in inbox], [b"%d" % i for i in range(40)], "once, in order")
            env.equal(client.core.stats.losses >= 5 * qos, True, "losses")
            client.unsubscribe(topic)
            await env.soon(reading)
            await env.until("UNSUBACK", lambda: not _of(client.core, "requests"))


async def cuts(env):
    """A reader that takes each message at once."""
    await _through_cuts(env, 8, 0.0)


async def cuts_while_a_queue_is_full(env):
    """A slow reader, which sometimes holds a message meanwhile."""
    await _through_cuts(env, 2, 0.005)


async def run_again(env):
    """disconnect() ends run() and the waiting calls, though the broker is away.

    The next run() waits for it, and keeps what was not acknowledged and the subscriptions.
    """
    client = env.client(b"again")
    topic = env.name(b"again")
    inbox = []
    client.subscribe(topic, lambda m: inbox.append(m.payload), 1)
    env.ask("refuse")
    running = asyncio.create_task(client.run())
    sending = asyncio.create_task(client.publish(topic, b"kept", 1))
    online = asyncio.create_task(client.connected())
    await env.until("a try that failed", lambda: client.core.stats.losses)
    env.equal(await env.soon(client.disconnect()), False, "DISCONNECT has left")
    await env.soon(running)
    for task in (sending, online):
        env.equal((await _raises(env, env.MQTTError, lambda t=task: t)).kind, "closed", "kind")
    running = asyncio.create_task(client.run())
    online = asyncio.create_task(client.connected())
    losses = client.core.stats.losses
    await env.until("another one", lambda: client.core.stats.losses > losses)
    env.equal((online.done(), client.core.error.kind), (False, "closed"), "done, kind")
    env.ask("accept")
    await env.soon(online)
    await env.until("what was kept", lambda: inbox == [b"kept"])
    await env.soon(client.publish(topic, b"new", 1))
    await env.until("the new one", lambda: inbox == [b"kept", b"new"])
    env.equal(await env.soon(client.disconnect()), True, "DISCONNECT has left")
    await env.soon(running)


async def a_hook_that_raises_at_the_end(env):
    """disconnect() raises it, and run() and the waiting calls end all the same."""

    def on_disconnect(client):
        raise KeyError("hook")

    client = env.client(b"hook", on_disconnect=on_disconnect)
    queue = client.subscribe(env.name(b"never"))
    running = asyncio.create_task(client.run())
    await env.soon(client.connected())
    reading = asyncio.create_task(_collect(queue, [], 1))
    await _raises(env, KeyError, client.disconnect)
    await env.soon(running)
    await env.soon(reading)


async def run_again_at_once(env):
    """disconnect() returns although the task of run() does not wait before the next one."""
    client = env.client(b"loop")

    async def run():
        while True:
            await client.run()

    running = asyncio.create_task(run())
    for connects in (1, 2):
        await env.soon(client.connected())
        env.equal(client.core.stats.connects, connects, "connects")
        await env.soon(client.disconnect())
    env.equal(await _cancelled(running), True, "cancelled")


async def refused_again(env):
    """A task that waits again after a refusal waits for what comes then."""
    env.ask("refuse")
    async with env.client(b"no") as client:
        await env.until("a try that failed", lambda: client.core.error)
        client.core.error = env.MQTTError("refused", "as after a CONNACK", 5)
        online = asyncio.create_task(client.connected())
        env.ask("accept")
        await env.soon(online)


async def cancelled_at_the_end(env):
    """Nothing runs after `async with`, even if its end is cancelled."""
    client = env.client(b"end")
    leaving = []

    def take_nothing():
        leaving.append(True)
        return True

    async def use():
        async with client:
            await client.connected()
            client.core.flush = take_nothing  # by which disconnect() waits

    using = asyncio.create_task(use())
    await env.until("the end", lambda: leaving)
    env.equal(await _cancelled(using), True, "cancelled")
    await env.until("the end of run()", lambda: not client.running)


async def room_in_order(env):
    """A large message that waits for room is not overtaken by small ones."""
    async with env.client(b"reads") as reader:
        queue = reader.subscribe(env.name(b"order"), qos=1, queue=16)
        await env.granted(queue)
        reading = asyncio.create_task(_payloads(queue, 13))
        client = env.client(b"order", inflight=8, tx_size=128)  # does not run yet
        waiting = []
        for i, size in enumerate([20, 20, 100] + [1] * 10):
            payload = bytes([65 + i]) * size
            waiting.append(asyncio.create_task(client.publish(env.name(b"order"), payload, 1)))
            await env.until("its turn", lambda n=i: len(client.publishing) > n)
        async with client:
            await env.soon(asyncio.gather(*waiting))
            came = await env.soon(reading)
        env.equal([payload[0] - 65 for payload in came], list(range(13)), "order")


async def others_leave_while_a_queue_is_full(env):
    """A message is held for the second of two queues.

    The first one is closed, or replaced: the second one gets the message all the same.
    """
    async with env.client(b"two") as client, env.client(b"fast") as sender:
        for way in ("close", "subscribe", "unsubscribe"):
            topic = env.name(way.encode())
            first = client.subscribe(env.name(b"+"), qos=1, queue=8)
            second = client.subscribe(topic, qos=1, queue=1)
            await env.granted(first, second)
            for i in range(3):
                await env.soon(sender.publish(topic, b"%d" % i, 1))
            await env.until("a full queue", lambda q=second: client.held is q)
            if way == "close":
                first.close()
            elif way == "subscribe":
                first = client.subscribe(env.name(b"+"), qos=1, queue=8)
            else:
                client.unsubscribe(env.name(b"+"))
            env.equal(await env.soon(_payloads(second, 3)), [b"0", b"1", b"2"], "payloads")
            first.close()


async def reply_in_the_loop(env):
    """A consumer that awaits acknowledgements while its queue is full is not stuck.

    Nor is one that awaits them in other tasks, though they wait for room.
    """
    async with env.client(b"reply", inflight=1) as client, env.client(b"asks") as sender:
        topic, answers = env.name(b"ask"), env.name(b"answer")
        queue = client.subscribe(topic, qos=1, queue=1)
        replies = sender.subscribe(answers, qos=1, queue=1)
        await env.granted(queue, replies)

        async def reply():
            async for m in queue:
                payload = b"re " + m.payload
                for _ in range(2):  # the first one may leave no room
                    again = client.publish(env.name(b"again"), payload, 1)
                    await asyncio.gather(again, client.publish(env.name(b"again"), payload, 1))
                await env.soon(client.publish(answers, payload, 1))
                answered.append(payload)

        answered = []
        replying = asyncio.create_task(reply())
        reading = asyncio.create_task(_payloads(replies, 20))
        for i in range(20):
            await env.soon(sender.publish(topic, b"%d" % i, 1))
        env.equal(await env.soon(reading), [b"re %d" % i for i in range(20)], "replies")
        # Not within wait_for: before 3.12 CPython loses a cancellation that comes with the result.
        await env.until("the last PUBACK", lambda: len(answered) == 20)
        env.equal(await _cancelled(replying), True, "cancelled")


async def a_filter_of_two_queues(env):
    """One queue is closed: the other one keeps what both have subscribed to."""
    async with env.client(b"both") as client:
        shared, other = env.name(b"shared"), env.name(b"other")
        first = client.subscribe([shared, other], qos=1)
        second = client.subscribe(shared, qos=1)
        await env.granted(first, second)
        first.close()
        await env.until("its end", lambda: first not in client.queues)
        reading = asyncio.create_task(_payloads(second, 1))
        await env.until("UNSUBACK", lambda: not _of(client.core, "requests"))
        await env.soon(client.publish(other, b"other", 1))
        await env.soon(client.publish(shared, b"shared", 1))
        env.equal(await env.soon(reading), [b"shared"], "payloads")
        await env.until("the end", lambda: not _of(client.core, "subscriptions"))


async def a_consumer_that_has_gone(env):
    """A queue whose consumer was cancelled ends when it is full; another one works."""
    async with env.client(b"gone") as client:
        topic = env.name(b"gone")
        queue = client.subscribe(topic, qos=1, queue=1)
        await env.granted(queue)
        reading = asyncio.create_task(_collect(queue, [], 1000))
        await asyncio.sleep(0)
        await _cancelled(reading)
        for i in range(5):
            await env.soon(client.publish(topic, b"%d" % i, 1))
        await env.until("its end", lambda: queue.closed and not _of(client.core, "subscriptions"))
        again = client.subscribe(topic, qos=1)
        await env.granted(again)
        await env.soon(client.publish(topic, b"again", 1))
        env.equal(await env.soon(_payloads(again, 1)), [b"again"], "payloads")


async def the_end_of_a_loop(env):
    """A queue whose task ended without closing it does not stop the client permanently.

    The subscription ends when the queue is full. The rest goes on.
    """
    async with env.client(b"end") as client:
        topic = env.name(b"end")
        async with client.subscribe(topic, qos=1) as queue:
            reading = asyncio.create_task(_collect(queue, [], 1, close=False))
            await env.granted(queue)
            await client.publish(topic, b"1", 1)
            await env.soon(reading)
        await env.until("the end", lambda: not _of(client.core, "subscriptions"))
        loops = []
        for _ in range(3):
            queue = client.subscribe(topic)
            loops.append(asyncio.create_task(_collect(queue, [], 1)))
            await env.granted(queue)
        await env.soon(asyncio.gather(*loops[:2]))
        env.equal(loops[2].done(), False, "the last one goes on")
        client.unsubscribe(topic)
        await env.soon(loops[2])
        queue = client.subscribe(topic)
        last = asyncio.create_task(_collect(queue, [], 1))
        await env.granted(queue)
    await env.soon(last)


async def a_refused_subscription(env):
    """Its loop raises MQTTError, but goes on if it was granted before: it is tried again."""
    topic = env.name(b"no")
    client = env.client(b"no")
    queue = client.subscribe(topic)
    queue.subscription.granted = b"\x80"  # as after a SUBACK
    error = await _raises(env, env.MQTTError, _collect, queue, [], 1)
    env.equal((error.kind, error.code), ("refused", 128), "error")
    async with client:
        queue = client.subscribe(topic)
        loop = asyncio.create_task(_collect(queue, [], 1))
        await env.granted(queue)
        await env.soon(client.publish(env.name(b"other"), b"1", 1))  # the loop has seen it by then
        queue.subscription.granted = b"\x80"  # as after the next connection
        client.turn.wake()
        await env.soon(client.publish(topic, b"1", 1))
        await env.soon(loop)


async def a_message_that_is_set_aside(env):
    """publish() raises if the message is given up, and on_dropped is called."""
    dropped = []
    client = env.client(b"drop", on_dropped=lambda *a: dropped.append(a))
    sending = asyncio.create_task(client.publish(env.name(b"drop"), b"1", 1))
    await env.until("its record", lambda: client.core.pending)
    packet_id = client.core.last_id
    async with client:
        client.core.drop(packet_id)
        error = await _raises(env, env.MQTTError, lambda: sending)
        env.equal((error.kind, error.code), ("dropped", packet_id), "error")
        wanted = [(packet_id, env.name(b"drop"))]
        env.equal([(each[0], bytes(each[1])) for each in dropped], wanted, "on_dropped")
        await env.soon(client.publish(env.name(b"drop"), b"2", 1))


async def a_message_that_is_set_aside_before_it_is_awaited(env):
    """Its wait raises, however many others nobody waits for. None marks a later message."""
    client = env.client(b"early")
    for others in (0, 20):
        for _ in range(others):
            client.publish(b"early", b"1", 1).close()
            client.core.drop(client.core.last_id)
        waiting = client.publish(b"early", b"2", 1)
        client.core.drop(client.core.last_id)
        error = await _raises(env, env.MQTTError, lambda w=waiting: w)
        env.equal((error.kind, error.code), ("dropped", client.core.last_id), "error")
    env.equal(len(client._dropped) <= client.core.inflight, True, "few errors are kept")
    client.core.last_id -= 2  # as after 65,535 messages
    async with client:
        await env.soon(client.publish(env.name(b"early"), b"3", 1))


async def bad_arguments(env):
    """They raise in the task that gave them, and leave nothing behind."""
    client = env.client(b"bad", tx_size=64)
    for wrong in ((b"a/#", b"", 1), (b"a", b"", 3), (b"a", bytes(100), 1)):
        await _raises(env, ValueError, client.publish, *wrong)
    for options, text in (
        ({"filters": b"a/#/b"}, "topic filter"),
        ({"filters": b"a", "queue": 0}, "queue must be 1 to 255, not 0"),
        ({"filters": b"a", "qos": 3}, "qos must be 0 to 2, not 3"),
    ):
        error = str(env.raises(ValueError, lambda o=options: client.subscribe(**o)))
        env.equal(text in error, True, error)
    error = str(env.raises(TypeError, lambda: Client(b"bad", env.host, qeepalive=1)))
    env.equal("qeepalive" in error, True, error)
    async with client:
        error = await _raises(env, RuntimeError, client.run)
        env.equal(str(error), "run() is running already", "text")
        await env.soon(client.publish(env.name(b"bad"), b"good", 1))
        env.equal((client.core.pending, client.publishing), (0, []), "left behind")


async def a_subclass_may_call_what_it_overrides(env):
    """Also where the code of a method is loaded for each call."""

    class Own(Client):
        calls = 0

        def subscribe(self, *arguments, **options):
            self.calls += 1
            return super().subscribe(*arguments, **options)

        def unsubscribe(self, filters):
            self.calls += 1
            return super().unsubscribe(filters)

        async def disconnect(self, timeout_ms=1000):
            self.calls += 1
            return await super().disconnect(timeout_ms)

        async def __aenter__(self):
            self.calls += 1
            return await super().__aenter__()

        async def __aexit__(self, *error):
            self.calls += 1
            await super().__aexit__(*error)

    async with env.client(b"own", Own) as client:
        queue = client.subscribe(env.name(b"own"), qos=1)
        await env.granted(queue)
        await env.soon(client.publish(env.name(b"own"), b"1", 1))
        env.equal(await env.soon(_payloads(queue, 1, close=False)), [b"1"], "payloads")
        client.unsubscribe(env.name(b"own"))
        env.equal(queue.closed, True, "closed")
    env.equal(client.calls, 5, "calls")  # `async with` calls disconnect()


async def calls_that_find_no_memory(env):
    """They raise MemoryError and change nothing. On CPython all code is there."""
    if sys.implementation.name != "micropython":
        return

    def without_memory(*name):
        raise MemoryError

    load = aio.load
    async with env.client(b"full") as client:
        queue = client.subscribe(env.name(b"full"), qos=1)
        await env.granted(queue)
        reading = asyncio.create_task(_payloads(queue, 2))
        aio.load = without_memory
        await _raises(env, MemoryError, client.subscribe, env.name(b"other"))
        await _raises(env, MemoryError, client.unsubscribe, env.name(b"full"))
        await _raises(env, MemoryError, client.disconnect)
        env.equal((client.running, client.queues), (True, [queue]), "running, queues")
        await env.soon(client.publish(env.name(b"full"), b"1", 1))
        aio.load = load
        await env.soon(client.publish(env.name(b"full"), b"2", 1))
        env.equal(await env.soon(reading), [b"1", b"2"], "payloads")


async def idle_turns(env):
    """Count the polls of an idle client, which sleeps in between."""
    client = env.client(b"idle")
    polls = [0]
    poll = client.core.poll

    def counted(ms=0):
        polls[0] += 1
        return poll(ms)

    client.core.poll = counted
    async with client:
        await env.soon(client.connected())
        queue = client.subscribe(env.name(b"idle"), qos=1)
        reading = asyncio.create_task(_collect(queue, [], 1))
        await env.granted(queue)
        await asyncio.sleep(0.2)
        before = polls[0]
        await asyncio.sleep(2)
        print("@turns", polls[0] - before)
        await _cancelled(reading)
