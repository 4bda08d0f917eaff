"""A TCP proxy on loopback that delays data, and counts the round trips of all connections."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Distance:
    """A place that is far away.

    :ivar port: the port of the proxy.
    :ivar round_trips: how often a client has sent data after it had got an answer, or for the first time.
    """

    target: int
    latency: float
    port: int = 0
    round_trips: int = 0
    _answered: set[int] = field(default_factory=set)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        number = id(writer)
        self._answered.add(number)
        await asyncio.gather(
            self._forward(reader, far_writer, number, sent=True),
            self._forward(far_reader, writer, number, sent=False),
        )

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int, *, sent: bool
    ) -> None:
        """Forward one direction; each piece arrives half the latency later."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        clock = asyncio.get_running_loop().time

        async def arrive() -> None:
            while (item := await pieces.get())[1]:
                await asyncio.sleep(max(0.0, item[0] - clock()))
                writer.write(item[1])
                if not sent:
                    self._answered.add(number)
            writer.close()

        arriving = asyncio.create_task(arrive())
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                if sent and number in self._answered:
                    self._answered.discard(number)
                    self.round_trips += 1
                pieces.put_nowait((clock() + self.latency / 2, data))
        pieces.put_nowait((0.0, b""))
        with contextlib.suppress(ConnectionError):
            await arriving


@contextlib.contextmanager
def far(target: int, latency: float = 0.05) -> Iterator[Distance]:
    """A proxy to a port of this machine.

    :param latency: the time of a round trip, in seconds.
    """
    distance, loop = Distance(target, latency), asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(distance._serve, "127.0.0.1", 0))
    distance.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield distance
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
