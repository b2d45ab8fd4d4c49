"""A port at which commands in sandboxes wait until the test lets them go on: the test knows how many have come so far."""

from __future__ import annotations

import socket
import threading
from types import TracebackType

WAIT = "exec 3<>/dev/tcp/127.0.0.1/{port}; read -r word <&3"  # bash, in a sandbox on this machine's network


class Gate:
    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._lock = threading.Lock()
        self._waiting: list[socket.socket] = []
        self._open = False
        self.arrived = 0
        self._thread = threading.Thread(target=self._accept)

    @property
    def command(self) -> str:
        return WAIT.format(port=self._listening.getsockname()[1])

    def release(self, *, keep_open: bool = False) -> None:
        """Let those go on that wait, and with `keep_open` all that come."""
        with self._lock:
            self._open = self._open or keep_open
            for connection in self._waiting:
                with connection:
                    connection.sendall(b"go\n")
            self._waiting.clear()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # closed
                return
            with self._lock:
                self.arrived += 1
                self._waiting.append(connection)
                begun = self._open
            if begun:
                self.release()

    def __enter__(self) -> Gate:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)  # a close alone does not wake `accept`
        self._listening.close()
        self._thread.join()
        for connection in self._waiting:
            connection.close()
