"""A TLS front for a plain server, in a process of its own: `python tls_relay.py UPSTREAM_PORT CERT KEY [CLIENT_CA]`.

Prints its port, then one line per connection with the server name that the client asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys

import uvloop


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):  # one side went away: the other one is closed too
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, ssl.SSLError):
        writer.close()


async def serve(upstream: int, certificate: str, key: str, client_ca: str | None) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    context.sni_callback = lambda _socket, name, _context: print("sni", name, flush=True)

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", upstream)
        await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer))

    server = await asyncio.start_server(one, "127.0.0.1", 0, ssl=context, backlog=512)
    print("ready", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else None))
