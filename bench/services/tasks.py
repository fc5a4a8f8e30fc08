# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One event loop that hands its work to threads, and waits for 2 ms of something else: tasks.py ADDRESS PORT"""
import asyncio, sys
from app import work


async def serve(reader, writer):
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            body, _ = await asyncio.gather(asyncio.to_thread(work, 700), asyncio.to_thread(work, 350))
            await asyncio.sleep(0.002)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main():
    server = await asyncio.start_server(serve, sys.argv[1], int(sys.argv[2]))
    await server.serve_forever()


asyncio.run(main())
