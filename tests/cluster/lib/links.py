"""links.py - connections of an asyncio client to the nodes of a cluster, for programs with so many
clients that they cannot be threads: rolling.py, bench/failover.
"""
import asyncio
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../server/lib"))
from live import encode  # noqa: E402

# What a call raises if no reply comes.
TROUBLE = (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError)


async def read_reply(reader):
    """A number, a list, None, bytes; an error is raised as ErrorReply."""
    line = (await reader.readuntil(b"\r\n"))[:-2]
    kind, rest = line[:1], line[1:]
    if kind == b"-":
        raise ErrorReply(rest.decode())
    if kind == b":":
        return int(rest)
    if kind == b"+":
        return rest
    if kind == b"$":
        return None if rest == b"-1" else (await reader.readexactly(int(rest) + 2))[:-2]
    if kind == b"*":
        return None if rest == b"-1" else [await read_reply(reader) for _ in range(int(rest))]
    raise ConnectionError("not a reply: %r" % line)


class ErrorReply(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.code = text.split(" ", 1)[0]


class Links:
    """Connections of one client, one for each node, made when they are needed."""

    def __init__(self, addresses, password=None):
        self.addresses, self.password, self.open = addresses, password, {}

    async def call(self, node, *words):
        if node not in self.open:
            self.open[node] = await asyncio.open_connection(*self.addresses[node])
            if self.password:
                await self.call(node, "AUTH", self.password)
        reader, writer = self.open[node]
        done = False
        try:
            writer.write(encode(words))
            reply = await read_reply(reader)
            done = True
            return reply
        except ErrorReply:
            done = True
            raise
        finally:
            if not done:  # what comes now would be the answer to something else
                self.close(node)

    def close(self, node):
        if node in self.open:
            self.open.pop(node)[1].close()

    def close_all(self):
        for node in list(self.open):
            self.close(node)
