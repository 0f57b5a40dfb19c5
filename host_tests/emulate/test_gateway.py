"""The gateway of the emulated ESP32s, with a board that loses every third frame."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from rp2040py.external.cyw43 import net

from flatmq_tools.emulate import gateway
from flatmq_tools.emulate.network import Network

MAC, IP, AWAY = bytes(5) + b"\2", bytes([10, 0, 0, 2]), bytes([192, 168, 1, 10])
MESSAGES = [b"message %d;" % n for n in range(60)]


class Board:
    """TCP as a board has it: what does not continue what it has is acknowledged as before."""

    def __init__(self) -> None:
        self.got = b""
        self.seq = 1000
        self.ack = 0
        self.most = 0  # segments at once, which QEMU's radio has to keep
        self.changed = asyncio.Event()
        self._count = 0
        self._waiting: list[net.TcpSegment] = []
        self.router: gateway.Router

    def schedule_threadsafe(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.ensure_future(work)

    def take(self, frame: bytes) -> None:
        """Take a frame, which is processed a while later; lose every third one."""
        eth = net.parse_ethernet(frame)
        assert eth is not None
        ip = net.parse_ipv4(eth.payload)
        assert ip is not None
        tcp = net.parse_tcp(ip.payload)
        assert tcp is not None
        self._waiting.append(tcp)
        self.most = max(self.most, len(self._waiting))
        asyncio.get_running_loop().call_later(0.01, self._process)

    def _process(self) -> None:
        tcp = self._waiting.pop(0)
        self._count += 1
        if self._count % 3 == 1:
            return
        if tcp.flags & net.TCP_SYN:
            self.ack = tcp.seq + 1
            self.send(net.TCP_ACK)
        elif tcp.payload:
            if tcp.seq == self.ack:
                self.got += tcp.payload
                self.ack += len(tcp.payload)
            self.send(net.TCP_ACK)
        self.changed.set()

    def send(self, flags: int, payload: bytes = b"") -> None:
        segment = net.pack_tcp(IP, AWAY, 5000, 1883, self.seq, self.ack, flags, 5760, payload)
        self.seq += len(payload)
        packet = net.pack_ipv4(IP, AWAY, net.IP_PROTO_TCP, segment)
        frame = net.pack_ethernet(MAC, MAC, net.ETHERTYPE_IPV4, packet)
        self.router.handle_outbound_ethernet_frame(frame)


async def talk() -> Board:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(5) == b"hello"
        for message in MESSAGES:  # each in a segment of its own
            writer.write(message)
            await asyncio.sleep(0)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    board = Board()
    network = Network(server.sockets[0].getsockname())
    board.router = gateway.PatientRouter(board, board.take, network)
    board.send(net.TCP_SYN)
    while not board.ack:  # as a board does where no answer comes
        board.changed.clear()
        try:
            await asyncio.wait_for(board.changed.wait(), 0.2)
        except asyncio.TimeoutError:
            board.send(net.TCP_SYN)
    board.seq += 1
    board.send(net.TCP_ACK | net.TCP_PSH, b"hello")
    while board.got != b"".join(MESSAGES):
        board.changed.clear()
        await board.changed.wait()
    server.close()
    return board


def test_what_the_air_loses_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "_AGAIN", 0.05)
    board = asyncio.run(asyncio.wait_for(talk(), 60))
    assert board.got == b"".join(MESSAGES)
    assert board.most < 20  # QEMU's limit
