"""An OpenAI-compatible server whose model does what it is told: calls of the one tool in turn, then the last output."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Model(BaseHTTPRequestHandler):
    turns: list[dict[str, str]]

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        outputs = [message for message in asked["messages"] if message["role"] == "tool"]
        message: dict[str, Any] = {"role": "assistant", "content": None}
        if len(outputs) < len(self.turns):
            (tool,) = [each["function"]["name"] for each in asked["tools"]]
            call = {"name": tool, "arguments": json.dumps(self.turns[len(outputs)])}
            message["tool_calls"] = [{"id": f"call{len(outputs)}", "type": "function", "function": call}]
        else:
            message["content"] = f"The tool said {outputs[-1]['content']}"
        answer = {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": asked["model"],
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "finish_reason": "stop" if message["content"] else "tool_calls",
                }
            ],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serve(turns: list[dict[str, str]]) -> Iterator[str]:
    """The base URL, for as long as the block lasts."""
    handler = type("Model", (_Model,), {"turns": turns})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
