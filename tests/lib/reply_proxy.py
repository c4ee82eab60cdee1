"""reply_proxy.py - a proxy that drops replies and closes connections."""
import asyncio


class Proxy:
    """Forwards one command at a time. Drops every n-th reply."""

    def __init__(self, addresses, n, rng):
        self.addresses, self.n, self.rng = addresses, n, rng
        self.count = self.dropped = 0

    async def serve(self, reader, writer):
        address = self.rng.choice(self.addresses)
        try:
            up_reader, up_writer = await asyncio.open_connection(*address)
        except OSError:
            writer.close()
            return

        async def down():
            try:
                while True:
                    data = await up_reader.read(65536)
                    if not data:
                        break
                    self.count += 1
                    if self.count % self.n == 0:
                        self.dropped += 1
                        break
                    writer.write(data)
                    await writer.drain()
            except OSError:
                pass
            self.close(writer, up_writer)

        async def up():
            try:
                while data := await reader.read(65536):
                    up_writer.write(data)
                    await up_writer.drain()
            except OSError:
                pass
            self.close(writer, up_writer)

        await asyncio.gather(down(), up())

    def close(self, *writers):
        for w in writers:
            if self.rng.random() < 0.5 and w.transport is not None:
                w.transport.abort()
            else:
                w.close()
