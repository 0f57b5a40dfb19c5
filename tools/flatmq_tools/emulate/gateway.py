"""The gateway of an emulated access point: DHCP, ARP, names, time, and the way to the broker."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable
from typing import Any

from rp2040py.external.cyw43 import net
from rp2040py.external.cyw43.nat import NatBridge, TcpFlow, TcpReflector

from .network import Network

_FLIGHT = 4  # segments without an acknowledgement on an air that loses some
_AGAIN = 3.0  # seconds until they are sent again


class Reflector(TcpReflector):
    """The board's TCP connections. One that ends badly does not end the machine."""

    def _on_guest_segment(self, flow: TcpFlow, tcp: net.TcpSegment) -> None:
        fresh = tcp.flags & net.TCP_SYN and not tcp.flags & net.TCP_ACK
        if fresh and tcp.seq != flow.guest_iss:
            # The board was reset and has chosen the same port; its next SYN is answered.
            if flow.pump_task is not None:
                flow.pump_task.cancel()
            if flow.writer is not None:
                flow.writer.close()
            self._flows.pop(flow.key, None)
            return
        try:
            super()._on_guest_segment(flow, tcp)
        except OSError:  # the broker's end is gone, and the board has closed its own
            flow.host_fin_sent = True
            self._queue_ethernet_frame(self._build_tcp_frame(flow, flags=net.TCP_ACK))
            self._maybe_evict(flow)


class PatientReflector(Reflector):
    """For an air that loses frames, and stops permanently where too many wait, as QEMU's."""

    def _on_guest_segment(self, flow: TcpFlow, tcp: net.TcpSegment) -> None:
        if tcp.flags & net.TCP_SYN and tcp.seq == flow.guest_iss and flow.writer is not None:
            frame = self._build_tcp_frame(  # the board has not received it
                flow, flags=net.TCP_SYN | net.TCP_ACK, seq=flow.host_iss, mss=flow.mss
            )
            self._queue_ethernet_frame(frame)
        super()._on_guest_segment(flow, tcp)

    async def _pump_host_to_guest(self, flow: TcpFlow) -> None:
        assert flow.reader is not None and flow.writer is not None
        sent: collections.deque[tuple[int, bytes]] = collections.deque()  # not acknowledged
        reading: asyncio.Future[bytes] | None = None
        is_open = True
        flags = net.TCP_FIN | net.TCP_ACK
        try:
            while is_open or sent:
                while sent and sent[0][0] + len(sent[0][1]) <= flow.bytes_acked_by_guest:
                    sent.popleft()
                room = flow.guest_window - flow.bytes_relayed_to_guest + flow.bytes_acked_by_guest
                if is_open and reading is None and room > 0 and len(sent) < _FLIGHT:
                    reading = asyncio.ensure_future(flow.reader.read(min(flow.mss, room)))
                flow.window_opened.clear()
                heard = asyncio.ensure_future(flow.window_opened.wait())
                waiting: set[asyncio.Future[Any]] = {heard, reading} if reading else {heard}
                done, _ = await asyncio.wait(
                    waiting,
                    timeout=_AGAIN if sent else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                heard.cancel()
                if reading is not None and reading in done:
                    data = reading.result()
                    reading = None
                    is_open = bool(data)
                    if data:
                        sent.append((flow.bytes_relayed_to_guest, data))
                        flow.bytes_relayed_to_guest += len(data)
                        self._transmit(flow, *sent[-1])
                elif not done:
                    for each in sent:
                        self._transmit(flow, *each)
        except OSError:  # the broker's end is gone
            flags = net.TCP_RST | net.TCP_ACK
            flow.guest_fin_seen = True  # the board has nothing more to say
        finally:
            if reading is not None:
                reading.cancel()
        self._queue_ethernet_frame(self._build_tcp_frame(flow, flags=flags))
        flow.host_fin_sent = True
        self._maybe_evict(flow)

    def _transmit(self, flow: TcpFlow, offset: int, data: bytes) -> None:
        seq = (flow.host_iss + 1 + offset) & 0xFFFFFFFF
        flags = net.TCP_ACK | net.TCP_PSH
        self._queue_ethernet_frame(self._build_tcp_frame(flow, flags=flags, seq=seq, payload=data))


class Router(NatBridge):
    """The gateway between the board and the network; `lost` while there is no radio."""

    reflector = Reflector

    def __init__(self, chip: Any, send: Callable[[bytes], None], network: Network) -> None:
        super().__init__(chip, send)
        self._network = network
        self._send = send
        self._tcp = self.reflector(chip, send, connect_fn=self._opened)
        self.lost = False

    async def _opened(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self._network.target(host, port))

    def handle_outbound_ethernet_frame(self, frame: bytes) -> None:
        """Take a frame of the board: its DHCP, ARP and TCP as ever, its other UDP by `network`."""
        eth = net.parse_ethernet(frame)
        if eth is None or self.lost:
            return
        ip = net.parse_ipv4(eth.payload) if eth.ethertype == net.ETHERTYPE_IPV4 else None
        udp = net.parse_udp(ip.payload) if ip and ip.proto == net.IP_PROTO_UDP else None
        if ip is None or udp is None or udp.dst_port == 67:
            super().handle_outbound_ethernet_frame(frame)
            return
        answer = self._network.datagram(udp.dst_port, udp.payload)
        if answer is not None:
            back = net.pack_udp(ip.dst_ip, ip.src_ip, udp.dst_port, udp.src_port, answer)
            packet = net.pack_ipv4(ip.dst_ip, ip.src_ip, net.IP_PROTO_UDP, back)
            self._send(net.pack_ethernet(eth.src_mac, eth.dst_mac, net.ETHERTYPE_IPV4, packet))


class PatientRouter(Router):
    """The same for an air that loses frames."""

    reflector = PatientReflector
