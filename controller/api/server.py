"""Serves the operator API on a Unix socket that only its owner may use, inside the controller's event loop."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from controller.audit.caller import caller_of
from controller.errors import StoreError

SOCKET = "api.sock"
_BACKLOG = 64
_MAX_CONCURRENT = 128
_GRACE_S = 1


class _Server(uvicorn.Server):
    """Uvicorn without its signal handlers, SIGTERM belongs to the daemon, and without waking ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ended = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)  # which waits a tenth of a second at least
            return
        for server in self.servers:
            server.close()


class _Protocol(H11Protocol):
    """HTTP on one connection, whose requests know whose it is (`request.state.caller`)."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection: Any = transport.get_extra_info("socket")
        self.app_state = {**self.app_state, "caller": caller_of(connection, f"unix:{connection.getsockname()}")}


class ApiServer:
    """The listening socket and the HTTP server behind it."""

    def __init__(self, app: FastAPI, directory: Path) -> None:
        self.path = directory / SOCKET
        self._server = _Server(
            uvicorn.Config(
                app,
                http=_Protocol,
                lifespan="off",
                log_config=None,
                access_log=False,
                date_header=False,
                server_header=False,
                ws="none",
                limit_concurrency=_MAX_CONCURRENT,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        self._socket = self._listen()

    def _listen(self) -> socket.socket:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
            before = os.umask(0o177)
            try:
                listening.bind(str(self.path))
            finally:
                os.umask(before)
            listening.listen(_BACKLOG)
        except OSError as problem:
            listening.close()
            raise StoreError(
                f"{self.path}: {problem.strerror or problem}; give another directory with --run"
            ) from None
        listening.setblocking(False)
        return listening

    async def run(self) -> None:
        """Serve until `close` is called."""
        await self._server.serve(sockets=[self._socket])

    def close(self) -> None:
        """Stop accepting; requests get a second to end."""
        self._server.should_exit = True
        self._server.ended.set()
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
