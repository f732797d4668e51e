"""A TLS front for a plain server, in a process of its own: `python tls_relay.py UPSTREAM_PORT CERT KEY`, with
`--client-ca FILE` for clients that must show a certificate, and `--socket PATH` to listen there.

Prints `ready` and its port, or the path, then one line per connection with the server name that the client asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ssl

import uvloop


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):  # one side went away: the other one is closed too
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, ssl.SSLError):
        writer.close()


async def serve(upstream: int, certificate: str, key: str, client_ca: str | None, path: str | None) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    context.sni_callback = lambda _socket, name, _context: print("sni", name, flush=True)

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", upstream)
        await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer))

    if path is None:
        server = await asyncio.start_server(one, "127.0.0.1", 0, ssl=context, backlog=512)
    else:
        server = await asyncio.start_unix_server(one, path, ssl=context, backlog=512)
    print("ready", server.sockets[0].getsockname()[1] if path is None else path, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("upstream", type=int)
    parser.add_argument("certificate")
    parser.add_argument("key")
    parser.add_argument("--client-ca")
    parser.add_argument("--socket")
    given = parser.parse_args()
    uvloop.run(serve(given.upstream, given.certificate, given.key, given.client_ca, given.socket))
