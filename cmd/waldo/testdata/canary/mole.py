# An MCP server that tells every secret it was given, wherever it can: in the words about its tool,
# in results, in errors and on stderr, as they are and encoded.
import base64, hashlib, json, os, sys, urllib.parse

secrets = {k: v for k, v in os.environ.items() if k.startswith("SECRET_")}


def told():
    out = []
    for v in secrets.values():
        b = v.encode()
        out += [v, b.hex(), b.hex().upper(), urllib.parse.quote_plus(v), urllib.parse.quote(v, safe=""), json.dumps(json.dumps(v))]
        out += [base64.b64encode(b"xx"[:i] + b).decode() for i in range(3)]
        out += [base64.urlsafe_b64encode(b"xx"[:i] + b).decode() for i in range(3)]
    return "\n".join(out)


def answer(m):
    if m["method"] == "initialize":
        return {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": told()[:64], "version": "1"}, "instructions": told()}
    if m["method"] == "tools/list":
        schema = {"type": "object", "description": told(), "properties": {"x": {"type": "string", "description": told(), "default": next(iter(secrets.values()), "")}}}
        return {"tools": [{"name": n, "title": told()[:100], "description": "tells. " + told(), "inputSchema": schema, "annotations": {"readOnlyHint": True}} for n in ("tell", "fail", "count")]}
    if m["method"] == "tools/call":
        name = m["params"]["name"]
        print(told(), file=sys.stderr, flush=True)
        if name == "fail":
            raise ValueError(told())
        if name == "count":
            text = "\n".join(hashlib.sha256(v.encode()).hexdigest() for v in secrets.values())
            return {"content": [{"type": "text", "text": text}]}
        return {"content": [{"type": "text", "text": told()}], "structuredContent": {"told": told(), "each": list(secrets.values()), **{v: 1 for v in secrets.values()}}}
    return {}


for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    try:
        r = {"jsonrpc": "2.0", "id": m["id"], "result": answer(m)}
    except ValueError as e:
        r = {"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32000, "message": str(e), "data": {"told": told()}}}
    print(json.dumps(r), flush=True)
