import sys
from typing import Any, Dict, List, Optional

HEADERS: Dict[str, str] = {}  # sent with each request outside of waldo, as in {"Authorization": "Bearer …"}
REVISION = "2025-11-25"
TIMEOUT = 60
MAX_ANSWER = 16 << 20


class ToolError(Exception):
    """A call that did not succeed."""


def _sandbox() -> Any:
    # The tools of a waldo sandbox, or None elsewhere.
    waldo = sys.modules.get("waldo")
    return getattr(waldo, "servers", None) if hasattr(waldo, "search_tools") else None


async def call_tool(tool: str, base_url: str, params: Any) -> Any:
    """Calls a tool: through waldo in a sandbox, else over HTTP."""
    servers = _sandbox()
    if servers is not None:
        return await servers[SERVER][tool](dict(params or {}))
    import asyncio
    return await asyncio.get_running_loop().run_in_executor(None, _over_http, tool, base_url, dict(params or {}))


def call_tool_sync(tool: str, base_url: str, params: Any) -> Any:
    """The same, without await."""
    servers = _sandbox()
    if servers is not None:
        return servers[SERVER][tool](dict(params or {}))
    return _over_http(tool, base_url, dict(params or {}))


def _over_http(tool: str, base_url: str, arguments: Dict[str, Any]) -> Any:
    if not base_url:
        raise ToolError("the server %s has no address: call it inside waldo, or give one" % SERVER)
    session: Dict[str, str] = {}
    hello = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "waldo-gen", "version": "1"}}
    agreed = _request(base_url, session, 1, "initialize", hello)
    session["MCP-Protocol-Version"] = str(agreed.get("protocolVersion", REVISION))
    _request(base_url, session, None, "notifications/initialized", None)
    answer = _request(base_url, session, 2, "tools/call", {"name": tool, "arguments": arguments})
    text = "\n".join(c.get("text", "") for c in answer.get("content") or [] if c.get("type") == "text")
    if answer.get("isError"):
        raise ToolError(text or "the tool failed")
    found = answer.get("structuredContent")
    return text if found is None else found


def _request(base_url: str, session: Dict[str, str], number: Optional[int], method: str, params: Any) -> Dict[str, Any]:
    import json
    import urllib.error
    import urllib.request

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None  # HEADERS go to base_url alone

    if not base_url.startswith(("http://", "https://")):
        raise ToolError("%r is not the address of an HTTP server" % base_url)
    message: Dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if number is not None:
        message["id"] = number
    if params is not None:
        message["params"] = params
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    body = json.dumps(message, allow_nan=False).encode()
    request = urllib.request.Request(base_url, body, {**HEADERS, **session, **headers})
    try:
        with urllib.request.build_opener(NoRedirect).open(request, timeout=TIMEOUT) as reply:
            if "Mcp-Session-Id" in reply.headers:
                session["Mcp-Session-Id"] = reply.headers["Mcp-Session-Id"]
            if number is None:
                return {}
            events = reply.headers.get_content_type() == "text/event-stream"
            answer = _answer(reply, number) if events else json.loads(_bounded(reply.read(MAX_ANSWER + 1)))
    except urllib.error.HTTPError as e:
        raise ToolError("the server answered with status %d" % e.code) from None
    if not isinstance(answer, dict) or not isinstance(answer.get("result"), dict):
        error = answer.get("error") if isinstance(answer, dict) else None
        raise ToolError(str(error.get("message")) if isinstance(error, dict) else "the server's answer is no result")
    result: Dict[str, Any] = answer["result"]
    return result


def _bounded(body: bytes) -> bytes:
    if len(body) > MAX_ANSWER:
        raise ToolError("the server's answer is too large")
    return body


def _answer(reply: Any, number: int) -> Any:
    # The answer in a stream of events.
    import json
    data: List[bytes] = []
    size = 0
    while True:
        line = reply.readline(MAX_ANSWER + 1)
        size += len(_bounded(line))
        if size > MAX_ANSWER:
            raise ToolError("the server's answer is too large")
        if line.startswith(b"data:"):
            data.append(line[5:].strip())
        elif not line.strip() and data:
            text, data = b"\n".join(data), []
            message = json.loads(text) if text else {}  # an event that only has an id has no message
            if message.get("id") == number and "method" not in message:
                return message
        if not line:
            raise ToolError("the server ended its answer early")
