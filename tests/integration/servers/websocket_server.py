"""A Responses server on the library websockets: `python websocket_server.py FILE` prints its port; requests go to FILE."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

WORDS = ["one", " two", " three"]


async def main(log: str) -> None:
    import websockets.asyncio.server as library

    async def serve(connection: Any) -> None:
        async for message in connection:
            asked = json.loads(message)
            with open(log, "a") as file:
                file.write(json.dumps({"path": connection.request.path, "asked": asked}) + "\n")
            events: list[dict[str, Any]] = [{"type": "response.created", "response": {"id": "resp_1"}}]
            events += [{"type": "response.output_text.delta", "delta": word} for word in WORDS]
            usage = {"input_tokens": 5, "output_tokens": len(WORDS)}
            events.append({"type": "response.completed", "response": {"status": "completed", "usage": usage}})
            for number, event in enumerate(events):
                text = json.dumps(event)
                await connection.send([text[:9], text[9:]] if number == 2 else text)  # a message in parts
                await (await connection.ping())

    async with library.serve(serve, "127.0.0.1", 0) as server:
        print(next(iter(server.sockets)).getsockname()[1], flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
