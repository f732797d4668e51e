"""A TLS front for a plain server on this host, which notes what it passed on when.

python tls_front.py --to PORT --certificate PEM --key PEM --log FILE      prints the port that it listens on

At SIGTERM *FILE* gets an array of `PASSED`: by the client's port, how many bytes it had been given after the write that began
at `t_ns` (CLOCK_MONOTONIC).
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import ssl
import time
from pathlib import Path

import numpy as np
import uvloop

PASSED = np.dtype([("port", "<u4"), ("bytes", "<u4"), ("t_ns", "<i8")])


async def pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passed: list[tuple[int, int, int]] | None
) -> None:
    port, total = (writer.get_extra_info("peername") or (0, 0))[1], 0
    try:
        while data := await reader.read(1 << 16):
            total += len(data)
            if passed is not None:
                passed.append((port, total & 0xFFFFFFFF, time.monotonic_ns()))
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # one side is gone: so is the other below
    finally:
        writer.close()


async def serve(asked: argparse.Namespace) -> None:
    passed: list[tuple[int, int, int]] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(asked.certificate, asked.key)

    async def accept(client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        server, to = await asyncio.open_connection("127.0.0.1", asked.to)
        await asyncio.gather(pump(client, to, None), pump(server, back, passed))

    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    listening = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context, backlog=512)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await ended.wait()
    np.save(asked.log, np.array(passed, PASSED))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=int, required=True)
    for name in ("certificate", "key", "log"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    uvloop.run(serve(parser.parse_args()))
