"""A relay that collects what the server sends and passes it on at intervals, as a buffering proxy does.

python batching_relay.py --to PORT --every-ms 40        prints the port that it listens on
"""

from __future__ import annotations

import argparse
import asyncio


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, every_s: float) -> None:
    """Bytes from one side to the other, at most once in *every_s*; 0: at once."""
    try:
        while data := await reader.read(1 << 16):
            if every_s:
                await asyncio.sleep(every_s)
                held = reader._buffer  # type: ignore[attr-defined]  # what has come meanwhile
                data += bytes(held)
                held.clear()
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # one side is gone: so is the other below
    finally:
        writer.close()


async def serve(port: int, every_s: float) -> None:
    async def accept(client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        server, to = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(client, to, 0.0), pump(server, back, every_s))

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    async with listening:
        await listening.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=int, required=True)
    parser.add_argument("--every-ms", type=float, default=40.0)
    asked = parser.parse_args()
    asyncio.run(serve(asked.to, asked.every_ms / 1e3))
