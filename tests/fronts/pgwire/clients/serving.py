"""Serves releases in a process of its own, and says where: for tests."""

from __future__ import annotations

import asyncio
import sys

from privsql.fronts.pgwire.server import serve


async def main() -> None:
    ready: asyncio.Future[list[tuple[str, int]]] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(sys.argv[1:], "127.0.0.1", 0, ready=ready))
    await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
    print(ready.result()[0][1] if ready.done() else 0, flush=True)
    await task


if __name__ == "__main__":
    asyncio.run(main())
