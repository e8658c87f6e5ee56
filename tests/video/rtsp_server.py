"""An RTSP server for tests: H.264 over TCP, on this machine, to one client after another.

It knows what a client needs to play: OPTIONS, DESCRIBE, SETUP, PLAY. Each client is sent the next batch of frames
and is then hung up on. A client that sends (ANNOUNCE, SETUP, RECORD) is received until it leaves.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import struct
import threading
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

av: Any = __import__("av")
CLOCK = 90_000  # Hz, of RTP's times of video


def encode(frames: Iterable[tuple[int, np.ndarray]]) -> list[tuple[int, list[bytes]]]:
    """Return frames, given with their times in ms, as times of RTP and NAL units."""
    context = av.CodecContext.create("libx264", "w")
    context.width, context.height, context.pix_fmt = 64, 48, "yuv420p"
    context.time_base, context.framerate = Fraction(1, 1000), Fraction(30)
    context.options = {"tune": "zerolatency", "g": "1", "crf": "10"}
    packets = []
    for time, pixels in frames:
        frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
        frame.pts, frame.time_base = time, Fraction(1, 1000)
        packets += context.encode(frame)
    packets += context.encode(None)
    return [(packet.pts * CLOCK // 1000, _units(bytes(packet))) for packet in packets]


def _units(stream: bytes) -> list[bytes]:
    parts = stream.replace(b"\0\0\0\1", b"\0\0\1").split(b"\0\0\1")
    return [part for part in parts if part]


class RtspServer:
    """Sends each client the next of the batches of `encode`; an empty one turns the client away."""

    def __init__(self, *batches: list[tuple[int, list[bytes]]]) -> None:
        self._batches = batches
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"rtsp://127.0.0.1:{self._listener.getsockname()[1]}/live"
        self.clients = 0
        self.received: list[tuple[int, bytes]] = []
        """The times and the payloads of the packets that a client sent."""
        self._thread = threading.Thread(target=self._run, name="rtsp server")

    def __enter__(self) -> RtspServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _run(self) -> None:
        for batch in self._batches:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.clients += 1
            with client, client.makefile("rb") as requests:
                if batch:
                    self._serve(client, requests, batch)

        self._listener.close()  # nobody else is let in

    def _receive(self, client: socket.socket, requests: Any) -> None:
        while head := requests.read(4):
            if head[:1] != b"$":  # a request that says good-bye
                return
            _, channel, size = struct.unpack(">BBH", head)
            packet = requests.read(size)
            if channel == 0:
                self.received.append((struct.unpack_from(">I", packet, 4)[0], packet[12:]))

    def _serve(self, client: socket.socket, requests: Any, batch: list[tuple[int, list[bytes]]]) -> None:
        sets = [unit for unit in batch[0][1] if unit[0] & 31 in (7, 8)]
        description = (
            "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=test\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\n"
            "a=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1;sprop-parameter-sets="
            f"{','.join(base64.b64encode(one).decode() for one in sets)}\r\na=control:track\r\n"
        )
        answers = {
            "OPTIONS": "Public: DESCRIBE, SETUP, PLAY\r\n\r\n",
            "DESCRIBE": f"Content-Type: application/sdp\r\nContent-Length: {len(description)}\r\n\r\n{description}",
            "SETUP": "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\nSession: 1\r\n\r\n",
            "PLAY": "Session: 1\r\n\r\n",
            "ANNOUNCE": "\r\n",
            "RECORD": "Session: 1\r\n\r\n",
        }
        while line := requests.readline():
            fields = {}
            while field := requests.readline().strip():
                name, _, value = field.decode().partition(":")
                fields[name.lower()] = value.strip()
            method = line.split()[0].decode()
            requests.read(int(fields.get("content-length", 0)))
            client.sendall(f"RTSP/1.0 200 OK\r\nCSeq: {fields['cseq']}\r\n{answers[method]}".encode())
            if method == "RECORD":
                return self._receive(client, requests)
            if method == "PLAY":
                break
        number = 0
        for time, units in batch:
            for unit in units:
                mark = 0x80 if unit is units[-1] else 0
                packet = struct.pack(">BBHII", 0x80, mark | 96, number, time, 7) + unit
                client.sendall(struct.pack(">BBH", 0x24, 0, len(packet)) + packet)
                number += 1
