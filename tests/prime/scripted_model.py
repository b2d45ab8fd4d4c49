"""An OpenAI-compatible server whose model does what it is told: calls of one tool in turn, then the last output."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Model(BaseHTTPRequestHandler):
    turns: list[dict[str, str]]
    tool: str | None

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = self._message(asked)
        finish = "tool_calls" if "tool_calls" in message else "stop"
        answer = {"id": "x", "created": 0, "model": asked["model"]}
        if asked.get("stream"):
            choices = [{"delta": message, "finish_reason": None}, {"delta": {}, "finish_reason": finish}]
            chunks = [
                json.dumps({**answer, "object": "chat.completion.chunk", "choices": [{"index": 0, **each}]})
                for each in choices
            ]
            kind, body = "text/event-stream", "".join(f"data: {each}\n\n" for each in [*chunks, "[DONE]"])
        else:
            answer |= {
                "object": "chat.completion",
                "choices": [{"index": 0, "message": message, "finish_reason": finish}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
            kind, body = "application/json", json.dumps(answer)
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def _message(self, asked: dict[str, Any]) -> dict[str, Any]:
        outputs = [message for message in asked["messages"] if message["role"] == "tool"]
        if len(outputs) >= len(self.turns):
            return {"role": "assistant", "content": f"The tool said {outputs[-1]['content']}"}
        names = [each["function"]["name"] for each in asked["tools"]]
        (tool,) = [name for name in names if self.tool in (None, name)]
        call = {"name": tool, "arguments": json.dumps(self.turns[len(outputs)])}
        calls = [{"index": 0, "id": f"call{len(outputs)}", "type": "function", "function": call}]
        return {"role": "assistant", "content": None, "tool_calls": calls}

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serve(turns: list[dict[str, str]], *, tool: str | None = None) -> Iterator[str]:
    """The base URL, for as long as the block lasts. `tool`: of several that a client offers, the one to call."""
    handler = type("Model", (_Model,), {"turns": turns, "tool": tool})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
