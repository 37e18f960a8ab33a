"""A server with aiohttp: it answers with the id of the request, and logs each request that it saw.

    python3 -m desync.aiohttp_server PORT LOG

Its log and `X-Draw` are those of strict_server.py; it knows `k`, `resp`, `early` and `slow`.
"""

import asyncio
import hashlib
import json
import signal
import sys

from aiohttp import web

LOG = None


async def answer(request):
    name = request.headers.get("X-Id", "")
    seen = {"method": request.method, "path": request.raw_path, "x_id": name,
            "request_id": request.headers.get("X-Request-Id", ""), "complete": False}
    draw = dict(part.split("=") for part in request.headers.get("X-Draw", "").split(",") if part)
    try:
        fields = {"X-Seen-Id": name}
        if "early" not in draw:
            body = await request.read()
            fields["X-Body"] = seen["sha"] = hashlib.sha256(body).hexdigest()
            seen["start"], seen["complete"] = body[:40].decode("latin-1"), True
        return await send(request, fields, f"{name}\n".encode() * int(draw.get("k", 1)), draw)
    finally:
        LOG.write(json.dumps(seen) + "\n")
        LOG.flush()


async def send(request, fields, body, draw):
    parts = int(draw.get("slow", 1))
    # aiohttp would send what is written, as the body of a response to HEAD.
    if request.method == "HEAD" or parts == 1 and draw.get("resp") == "len":
        return web.Response(body=body, headers=fields)
    response = web.StreamResponse(headers=fields)
    if draw.get("resp") == "len":
        response.content_length = len(body)
    else:
        response.enable_chunked_encoding()
    await response.prepare(request)
    size = max(1, -(-len(body) // parts))
    for at in range(0, len(body), size):
        await response.write(body[at:at + size])
        await asyncio.sleep(0.001 if parts > 1 else 0)
    await response.write_eof()
    return response


async def main():
    global LOG
    LOG = open(sys.argv[2], "a", encoding="utf-8")
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", answer)
    # Heads of riskgate's own limit, 16 KiB, pass.
    runner = web.AppRunner(app, access_log=None, max_line_size=32_768, max_field_size=32_768)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(sys.argv[1]), backlog=1024).start()
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()


if __name__ == "__main__":
    asyncio.run(main())
