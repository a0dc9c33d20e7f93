# The library of a script in a sandbox: tools, files, a logger. waldo does not trust it: every call goes over
# descriptor 3 to waldo, which decides. It imports little of the standard library and no other module,
# because every run pays for its import.
import os, sys
from _thread import RLock


class ToolError(Exception):
    """A call that did not succeed. decision_id is the argument of `waldo explain`; reasons are
    {"code", "text"}; result is the tool's own result, if it ran."""

    def __init__(self, message, tool="", meta=None, result=None):
        super().__init__(message)
        meta = meta or {}
        self.tool = tool
        self.result = result
        self.decision_id = meta.get("waldo/decision_id", "")
        self.call_id = meta.get("waldo/call_id", "")
        self.status = meta.get("waldo/status", "failed")
        self.side_effect = meta.get("waldo/side_effect", "unknown")
        self.reasons = [Record(r) for r in meta.get("waldo/reasons") or []]
        self.approval_id = meta.get("waldo/approval_id", "")
        self.confirm = meta.get("waldo/confirm", "")


class Denied(ToolError):
    """The contract or a human denied the call. It was not executed."""


class Waiting(ToolError):
    """The call waits. If a human has to answer first, call again later with waldo_approval=error.approval_id. If
    error.confirm is set, this was a preview: the same call with confirm=error.confirm acts."""


# ---- results ----

_METHODS = ("keys", "items", "values", "get")


class Record(dict):
    """A JSON object whose fields are also attributes, except keys, items, values and get, which
    are the methods of a dict."""

    def __getattribute__(self, name):
        if name[:2] != "__" and name not in _METHODS and dict.__contains__(self, name):
            return self[name]
        return dict.__getattribute__(self, name)

    def __getattr__(self, name):
        raise AttributeError("no field %r: there are %s" % (name, ", ".join(map(repr, self)) or "none"))

    def __setattr__(self, name, value):
        self[name] = value


def _wrap(v):
    if type(v) is dict:
        return Record((k, _wrap(x)) for k, x in v.items())
    if type(v) is list:
        return [_wrap(x) for x in v]
    return v


class Result(str):
    """The text of a tool's answer, with its structured fields as attributes: result.title,
    result["title"], and for lists result[0], len(result), `for row in result`. Awaiting it gives
    it back. Where a field has the name of a method of str, the field wins."""

    def __new__(cls, text, data=None, structured=None, content=(), meta=None):
        r = str.__new__(cls, text)
        r.__dict__.update(_data=data, _structured=structured, _content=content, _meta=meta or {})
        return r

    def _rows(self):
        # The list in the answer, or None: the answer itself, or the only list of an object.
        data = self._data
        if isinstance(data, dict):
            lists = [v for v in data.values() if type(v) is list]
            data = lists[0] if len(lists) == 1 else None
        return data if isinstance(data, list) else None

    def __getattribute__(self, name):
        if name[:1] != "_":
            data = str.__getattribute__(self, "_data")
            if isinstance(data, dict) and name in data:
                return data[name]
        return str.__getattribute__(self, name)

    def __getattr__(self, name):
        own = {"text": str.__str__(self), "data": self._data, "structured": self._structured,
               "content": self._content, "meta": self._meta,
               "decision_id": self._meta.get("waldo/decision_id", ""),
               "trust": self._meta.get("waldo/trust", "untrusted"),
               "facts": _wrap(self._meta.get("waldo/facts") or {})}
        if name in own:
            return own[name]
        if isinstance(self._data, dict) and name[:2] != "__":
            return getattr(self._data, name)
        raise AttributeError("the result has no field %r: it is %s" % (name, "text" if self._data is None else "a list"))

    def __getitem__(self, key):
        data = self._data
        if isinstance(key, str) and isinstance(data, dict):
            return data[key]
        rows = self._rows()
        return rows[key] if rows is not None else str.__getitem__(self, key)

    def __iter__(self):
        rows = self._rows()
        return iter(rows) if rows is not None else str.__iter__(self)

    def __len__(self):
        rows = self._rows()
        return len(rows) if rows is not None else str.__len__(self)

    def __bool__(self):
        return bool(self._data) if self._data is not None else str.__len__(self) > 0

    def __contains__(self, x):
        data = self._data
        if isinstance(data, dict) and x in data:
            return True
        rows = self._rows()
        return (rows is not None and x in rows) or (isinstance(x, str) and str.__contains__(self, x))

    def __await__(self):
        return self
        yield


def _result(answer, tool):
    import json
    meta = answer.get("_meta") or {}
    if meta.get("waldo/held"):
        return Held(meta["waldo/held"], tool)
    content = answer.get("content") or []
    text = "\n".join(c.get("text", "") for c in content if c.get("type") == "text")
    structured = data = answer.get("structuredContent")
    if data is None and text[:1] in ("{", "["):
        try:
            data = json.loads(text)
        except ValueError:
            pass
    elif isinstance(data, dict) and list(data) == ["result"]:
        data = data["result"]  # servers wrap other values than objects so
    if not text and data is not None:
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    r = Result(text, _wrap(data), _wrap(structured), content, meta)
    if not answer.get("isError"):
        return r
    reasons = "; ".join("%s: %s" % (w.get("code"), w.get("text", "")) for w in meta.get("waldo/reasons") or [])
    kind = {"denied": Denied, "waiting": Waiting}.get(meta.get("waldo/status"), ToolError)
    if meta.get("waldo/confirm"):
        reasons = text
    elif kind is Waiting:
        reasons = "waits for the approval of a human, %s; %s" % (meta.get("waldo/approval_id", ""), reasons)
    raise kind("%s: %s" % (tool, reasons or text or "failed"), tool, meta, r)


# ---- the protocol ----

_MOST = 24  # requests at once, and bytes of them, below waldo's own limits
_HELD = 12 << 20
_ROUNDS = 1000  # of an event loop that is never idle, between two answers
_FD = getattr(sys, "_waldo_bridge", 3)


class _Bus:
    def __init__(self):
        self.writing, self.reading = RLock(), RLock()
        self.open = {}  # request id -> Pending
        self.buffer = bytearray()
        self.frames = []  # that were read and not given to their callers yet
        self.loop = self.stepping = None  # the event loop that awaited last, and the one that gets them next
        self.last = 0
        self.pid = os.getpid()
        self.dead = None
        _wrap_json()
        try:
            os.fstat(_FD)
        except OSError:
            self.dead = "this run has no tools"

    def send(self, pending, method, params):
        import json
        if os.getpid() != self.pid:
            raise ToolError("tools are called from the first process of a script, not from its children")
        body = json.dumps(params, ensure_ascii=False, allow_nan=False, default=_plain)  # it can wait for another call
        with self.writing:
            self.last += 1
            frame = '{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}\n' % (self.last, method, body)
            frame = memoryview(frame.encode())
            pending.__dict__["_bytes"] = len(frame)
            while self.full(len(frame)):
                with self.reading:  # another thread may have made room meanwhile
                    if self.full(len(frame)):
                        self.pump()
            self.rest()
            if self.dead:
                raise ToolError(self.dead)
            self.open[self.last] = pending
            try:
                while frame:
                    frame = frame[os.write(_FD, frame):]
            except OSError as e:
                self.end("the bridge to waldo is closed: %s" % e)

    def full(self, size):
        return self.open and not self.dead and (len(self.open) >= _MOST or self.held() + size > _HELD)

    def held(self):
        return sum(p._bytes for p in list(self.open.values()))

    def pump(self):
        # Waits for input and gives one answer to its caller.
        with self.reading:
            self.frames or self.read()
            if self.frames:
                import json
                message = json.loads(self.frames.pop(0))
                pending = self.open.pop(message.get("id"), None)
                if pending is not None:
                    pending._arrive(message)
                elif "error" in message:
                    self.end("waldo closed the bridge: %s" % message["error"].get("message"))

    def read(self):
        with self.reading:
            try:
                part = os.read(_FD, 1 << 18)
            except OSError as e:
                return self.end("the bridge to waldo is closed: %s" % e)
            if not part:
                return self.end("waldo closed the bridge")
            self.buffer += part
            if b"\n" not in part:
                return
            *frames, rest = bytes(self.buffer).split(b"\n")
            self.buffer[:] = rest
            self.frames += frames

    def end(self, why):
        self.dead = self.dead or why
        for pending in list(self.open.values()):
            pending._arrive({"error": {"message": self.dead}})
        self.open.clear()

    def wait(self, pending):
        while pending._message is None:
            with self.reading:
                if pending._message is None:
                    self.pump()
        self.rest()

    def rest(self):
        # The event loop gets the answers that were read with that of another caller.
        if self.frames and self.loop and self.stepping is not self.loop:
            try:
                self.loop.call_soon_threadsafe(self.ready, self.loop)
            except RuntimeError:  # it is closed
                while self.frames:
                    self.pump()

    def ready(self, loop):
        # Called by an event loop when the socket is readable.
        import select
        if self.reading.acquire(False):
            try:
                if not self.frames and select.select([_FD], [], [], 0)[0]:
                    self.read()
            finally:
                self.reading.release()
        if self.stepping is not loop:
            self.step(loop)

    def step(self, loop, rounds=0):
        # Gives one answer to a program that can do nothing else, and the next one after what it does then. So what it
        # does depends on the order of the answers alone, and not on their time.
        busy = rounds < _ROUNDS and getattr(loop, "_ready", None)
        if self.frames and not busy and self.reading.acquire(False):
            try:
                self.frames and self.pump()
            finally:
                self.reading.release()
        if self.frames:
            loop.remove_reader(_FD)
            self.stepping = loop
            loop.call_soon(self.step, loop, rounds + 1 if busy else 0)
        elif not self.open:
            loop.remove_reader(_FD)
            self.stepping = None
        elif self.stepping is loop:
            loop.add_reader(_FD, self.ready, loop)
            self.stepping = None


_bus = None
_making = RLock()


def _wire():
    global _bus
    with _making:
        if _bus is None:
            _bus = _Bus()
    return _bus


def _plain(v):
    if type(v) in (Pending, Held):
        return v._take()
    for name in ("model_dump", "to_dict", "_asdict"):
        if hasattr(v, name):
            return getattr(v, name)()
    if isinstance(v, (set, frozenset, tuple)):
        return list(v)
    if hasattr(v, "isoformat"):
        return v.isoformat()
    if hasattr(v, "__dict__"):
        return {k: x for k, x in vars(v).items() if k[:1] != "_"}
    raise TypeError("%s cannot be sent to a tool" % type(v).__name__)


def _loop():
    a = sys.modules.get("asyncio")
    return a._get_running_loop() if a else None


class Pending:
    """An answer on its way. Awaiting it gives the result; using it waits for the result."""

    def __init__(self, method, params, finish):
        self.__dict__.update(_message=None, _finish=finish, _futures=[], _steps=None, _value=None)
        _wire().send(self, method, params)

    def _arrive(self, message):
        self.__dict__["_message"] = message
        for loop, future in self._futures:
            if loop.is_closed():  # the program gave the call up
                continue
            loop.call_soon_threadsafe(lambda f=future: f.done() or f.set_result(None))

    def _take(self):
        _bus.wait(self)
        if self._value is None:
            if "error" in self._message:
                e = self._message["error"]
                raise ToolError(e.get("message", "failed"), meta=e.get("data"))
            self.__dict__["_value"] = (self._finish(self._message["result"]),)
        return self._value[0]

    def __await__(self):
        loop = _loop()
        if self._message is None and loop is not None:
            future = loop.create_future()
            self._futures.append((loop, future))
            if self._message is None:
                _bus.loop = loop
                if _bus.stepping is not loop:
                    loop.add_reader(_FD, _bus.ready, loop)
                yield from future.__await__()
        return self._take()

    def send(self, value):  # with throw and close: asyncio.create_task requires them of a coroutine
        if self._steps is None:
            self.__dict__["_steps"] = self.__await__()
        return self._steps.send(value)

    def throw(self, *error):
        if self._steps is None:
            self.__dict__["_steps"] = self.__await__()
        return self._steps.throw(*error)

    def close(self):
        if self._steps is not None:
            self._steps.close()

    @property
    def __class__(self):
        return Result

    def __getattr__(self, name):
        return getattr(self._take(), name)

    def __setattr__(self, name, value):
        setattr(self._take(), name, value)


def _forward(name):
    def method(self, *args):
        value = self._take()
        return getattr(type(value), name)(value, *args)
    return method


class Held(Pending):
    """The result of a call that is held until a human has said yes. Using it waits for that. Awaiting it gives it back,
    and a set or a dict takes it as the object that it is."""

    __hash__ = object.__hash__

    def __init__(self, number, tool):
        self.__dict__.update(_number=number, _tool=tool, _asked=None, _steps=None)

    def _take(self):
        if self._asked is None:
            self.__dict__["_asked"] = Pending("waldo/result", {"number": self._number}, lambda a: _result(a, self._tool))
        return self._asked._take()

    def __await__(self):
        return self
        yield


for _name in ("str repr format getitem iter len bool contains eq ne lt le gt ge add mod mul hash").split():
    setattr(Pending, "__%s__" % _name, _forward("__%s__" % _name))


def _ask(method, params, finish):
    # Inside an event loop the answer can come later; elsewhere this waits for it.
    p = Pending(method, params, finish)
    return p if _loop() is not None else p._take()


# ---- tools ----

class Params(Record):
    """The arguments of a call, written Params(title="…")."""

    def __init__(self, *args, **fields):
        super().__init__(*args, **fields)


def _arguments(args, fields):
    args = list(args)
    if args and isinstance(args[0], str):
        args.pop(0)  # the server's address, which waldo ignores
    if len(args) > 1 or (args and args[0] is not None and not isinstance(args[0], (dict, Result)) and not hasattr(args[0], "__dict__")):
        raise TypeError("a tool takes its arguments by name, or as one dict")
    given = args[0] if args and args[0] is not None else {}
    if isinstance(given, Result):
        given = given._data
    if not isinstance(given, dict):
        given = _plain(given)
    return {**given, **fields}


# What the tools are, by name, for dir() and help(): asked once, at their first use.
_catalogue = {}


def _known():
    cursor = ""
    while not _catalogue or cursor:
        page = Pending("tools/list", {"cursor": cursor} if cursor else {}, lambda answer: answer)._take()
        for t in page["tools"]:
            _catalogue[(t.get("_meta") or {}).get("waldo/capability", t["name"])] = t
        cursor = page.get("nextCursor") or ""
        if not page["tools"]:
            break
    return _catalogue


def _spelled(name):
    return "".join(c if c.isascii() and (c.isalnum() or c in "._") else "_" for c in name)


def _shape(schema):
    kind = schema.get("type", "")
    if isinstance(kind, list):
        kind = " or ".join(map(str, kind))
    if "enum" in schema:
        kind = "one of " + ", ".join(map(repr, schema["enum"][:20]))
    return str(kind)


def _about(name):
    # The text of help() about a tool.
    tool = _known().get(name) or next((t for n, t in _catalogue.items() if _spelled(n) == name), None)
    if tool is None:
        return "%s is no tool that this program sees: dir(servers) lists servers, search_tools finds tools" % name
    lines = [tool.get("title") or "", tool.get("description") or ""]
    schema = tool.get("inputSchema") or {}
    for field, of in (schema.get("properties") or {}).items():
        of = of if isinstance(of, dict) else {}
        kind = _shape(of) + ("" if field in (schema.get("required") or []) else ", optional")
        lines.append("  %s: %s  %s" % (field, kind.strip(", "), " ".join(str(of.get("description") or "").split())))
    return "\n".join(line.rstrip() for line in lines if line.strip())


class _Doc:
    # The documentation of a class for the class, and of a tool or server for an instance.
    def __init__(self, text, about):
        self.text, self.about = text, about

    def __get__(self, instance, owner):
        return self.text if instance is None else self.about(instance)


class Tool:
    __doc__ = _Doc("One tool. Call it with its arguments by name or as one dict.", lambda tool: _about(tool.name))

    Params = Params

    def __init__(self, name):
        self.name = name
        self.server, _, self.tool = name.rpartition(".")

    def __call__(self, *args, waldo_approval="", **fields):
        params = {"name": self.name, "arguments": _arguments(args, fields)}
        if waldo_approval:
            params["waldo/approval_id"] = waldo_approval
        return _ask("tools/call", params, lambda answer: _result(answer, self.name))

    @property
    def call(self):
        return self

    def __repr__(self):
        return "<tool %s>" % self.name


class Server:
    __doc__ = _Doc("The tools of one server, by attribute or by name in brackets.",
                   lambda server: "Tools: " + ", ".join(dir(server)))

    def __init__(self, name):
        self._name = name

    def __dir__(self):
        begin = _spelled(self._name) + "."
        return [n[len(begin):] for n in map(_spelled, _known()) if n.startswith(begin)]

    def __getattr__(self, name):
        if name[:2] == "__":
            raise AttributeError(name)
        return Tool("%s.%s" % (self._name, name))

    __getitem__ = __getattr__

    def __repr__(self):
        return "<server %s>" % self._name


class _Servers:
    __doc__ = _Doc("The servers, by attribute or by name in brackets.",
                   lambda servers: "Servers: " + ", ".join(dir(servers)))

    def __dir__(self):
        return sorted({n.split(".", 1)[0] for n in map(_spelled, _known()) if "." in n})

    def __getattr__(self, name):
        if name[:2] == "__":
            raise AttributeError(name)
        return Server(name)

    __getitem__ = __getattr__

    def __repr__(self):
        return "<servers>"


class ToolRef:
    """A tool that was found: name, server, tool, title, description, and with detail="full"
    input_schema and output_schema. load() returns the callable tool."""

    def __init__(self, found):
        self.name = found["name"]
        self.server, _, self.tool = self.name.rpartition(".")
        self.title = found.get("title") or ""
        self.description = found.get("description") or ""
        self.summary = self.description.split("\n", 1)[0]
        self.input_schema = found.get("inputSchema")
        self.output_schema = found.get("outputSchema")

    def load(self):
        return Tool(self.name)

    def __call__(self, *args, **fields):
        return Tool(self.name)(*args, **fields)

    def __repr__(self):
        return "ToolRef(server=%r, tool=%r, summary=%r)" % (self.server, self.tool, self.summary)


class Tools(list):
    """The results of a search, best first. Awaiting it returns it."""

    def __await__(self):
        return self
        yield


def search_tools(query="", detail="basic", limit=20):
    """Finds tools by words of their names and descriptions. detail is name, basic or full."""
    p = Pending("waldo/search", {"query": str(query), "detail": detail, "limit": limit},
                lambda answer: Tools(ToolRef(t) for t in answer["tools"]))
    return p._take()


servers = _Servers()


# ---- files ----

class _Workspace:
    """The files of the session. Files written here persist for the session; reads find the session's
    input and earlier output."""

    root = "/workspace/output"
    input = "/workspace/input"

    def path(self, name=""):
        name = os.fspath(name)
        for prefix in (self.root + "/", "./", ".workspace/"):
            if name.startswith(prefix):
                name = name[len(prefix):]
        if name.startswith("/") or ".." in name.split("/"):
            raise ValueError("%r is not below the workspace" % name)
        return os.path.join(self.root, name) if name else self.root

    def write(self, name, data):
        """Writes text, bytes, or anything else as JSON. Returns the path."""
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if isinstance(data, Pending):
            data = data._take()
        if isinstance(data, (bytes, bytearray, memoryview)):
            with open(path, "wb") as f:
                f.write(data)
            return path
        if not isinstance(data, str):
            import json
            data = json.dumps(data, ensure_ascii=False, indent=2, default=_plain) + "\n"
        with open(path, "w", encoding="utf-8", newline="") as f:
            f.write(data)
        return path

    def read(self, name, binary=False):
        """Reads a file that was written, or a file of the input. Text unless binary."""
        path = self.path(name)
        if not os.path.exists(path):
            other = os.path.join(self.input, path[len(self.root) + 1:])
            path = other if os.path.exists(other) else path
        with open(path, "rb") as f:
            data = f.read()
        return data if binary else data.decode("utf-8")

    def read_json(self, name):
        import json
        return _wrap(json.loads(self.read(name)))

    def exists(self, name):
        return os.path.exists(self.path(name))

    def list(self, under=""):
        """Names of the files that were written, sorted."""
        names = []
        for folder, _, files in os.walk(self.path(under)):
            names += [os.path.relpath(os.path.join(folder, f), self.root) for f in files]
        return sorted(names)


workspace = _Workspace()


# ---- privacy ----

# internal/detect/data: begin
_SECRET = r"password|passwd|passphrase|passwort|secret|api[_-]?key|access[_-]?key|private[_-]?key|credential|pwd|auth[_-]?token|access[_-]?token|refresh[_-]?token|bearer[_-]?token|client[_-]?secret|signing[_-]?key|encryption[_-]?key|master[_-]?key|connection[_-]?string|token|authorization|pass"
_PERSONAL = [
    (r"[A-Za-z0-9._%+-]+@(?!v?\d+\.\d|\d+\w?\.(?:png|jpe?g|gif|svg|webp|ico|tar|tgz|gz|xz)\b)[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}", "[EMAIL]"),
    (r"(?<![\w.-])\d(?:(?:  ?|[.+-]|%20)?\d){11,18}(?![\w-])", "[CREDIT_CARD]"),
    (r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])", "[SSN]"),
    (r"(?<![\w.])(?:\+?\d{1,3}[-. ]?)?(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]?\d{4}(?![\w-])", "[PHONE]"),
    (r"(?<![\w.])\+\d(?:[-. ]?\d){7,13}(?![\w-])", "[PHONE]"),
]
_ISSUED = [
    (1800, 1800, 15, 15),
    (2131, 2131, 15, 15),
    (2221, 2720, 16, 16),
    (3000, 3059, 14, 19),
    (3095, 3095, 14, 19),
    (3400, 3499, 15, 15),
    (3500, 3599, 16, 19),
    (3600, 3699, 14, 19),
    (3700, 3799, 15, 15),
    (3800, 3999, 14, 19),
    (4000, 4999, 13, 13),
    (4000, 4999, 16, 16),
    (4000, 4999, 19, 19),
    (5000, 5099, 12, 19),
    (5100, 5599, 16, 16),
    (5600, 5899, 12, 19),
    (6000, 6999, 12, 19),
    (8100, 8199, 16, 19),
]
# internal/detect/data: end

_patterns = None


def _compiled():
    global _patterns
    if _patterns is None:
        import re
        _patterns = [(re.compile(r"(?i)([\"']?[\w-]*(?:%s)[\w-]*[\"']?\s*[:=]\s*)(?:(?:bearer|basic)\s+)?(\"[^\"]*\"|'[^']*'|[^\s,;}\]\[&\"']+)" % _SECRET), _hide)]
        _patterns += [(re.compile(p), _card if instead == "[CREDIT_CARD]" else instead) for p, instead in _PERSONAL]
    return _patterns


def _hide(m):
    quote = m.group(2)[0] if m.group(2)[0] in "\"'" else ""
    return m.group(1) + quote + "[REDACTED]" + quote


def _card(m):
    # The rules of internal/detect: issued prefixes, the groups of a card, the check digit of ISO/IEC 7812.
    import re
    groups = re.split(r"%20|[^0-9]+", m.group())
    digits = "".join(groups)
    n, lead, sizes = len(digits), int(digits[:4]), [len(g) for g in groups]
    seps = set(re.findall(r"%20|[^0-9]+", m.group().replace("%20", " ")))
    dashed = seps == {"-"} and sizes == [4, 4, 4, 4]
    total = 0
    for i, d in enumerate(reversed([int(c) for c in digits])):
        total += d if i % 2 == 0 else (d * 2 - 9 if d > 4 else d * 2)
    ok = any(a <= lead <= b and least <= n <= most for a, b, least, most in _ISSUED)
    ok = ok and (dashed or total % 10 == 0 and len(set(digits)) > 1)
    if len(groups) > 1:
        ok = ok and len(seps) == 1 and 3 <= len(sizes) <= 5 and sizes[-1] <= 7 and all(
            s == 4 or k == 1 and 5 <= s <= 7 for k, s in enumerate(sizes[:-1]))
    return "[CREDIT_CARD]" if ok else m.group()


def scrub(value):
    """Removes personal data and secrets from text, and from lists and dicts that hold text."""
    if isinstance(value, dict):
        return {k: _field(k, v) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, str):
        return type(value)(scrub(v) for v in value) if type(value) in (list, tuple) else [scrub(v) for v in value]
    if not isinstance(value, str):
        return value
    text = str(value)
    for pattern, instead in _compiled():
        text = pattern.sub(instead, text)
    return text


def _field(key, value):
    # The whole value of a field named like a secret is removed.
    if isinstance(key, str) and isinstance(value, (str, int)) and scrub(key + "=x") != key + "=x":
        return "[REDACTED]"
    return scrub(value)


class _Logger:
    """Writes scrubbed lines to stderr."""

    def _say(self, level, message, args):
        text = str(message)
        if args:
            try:
                text = text % args
            except (TypeError, ValueError):
                text = " ".join([text] + [str(a) for a in args])
        print(level + " " + scrub(text), file=sys.stderr, flush=True)

    def debug(self, message, *args, **_): self._say("DEBUG", message, args)
    def info(self, message, *args, **_): self._say("INFO", message, args)
    def warning(self, message, *args, **_): self._say("WARNING", message, args)
    def error(self, message, *args, **_): self._say("ERROR", message, args)
    def critical(self, message, *args, **_): self._say("CRITICAL", message, args)
    warn = warning

    def log(self, level, message, *args, **_):
        self._say(str(level), message, args)

    def exception(self, message, *args, **_):
        self._say("ERROR", message, args)
        import traceback
        print(scrub(traceback.format_exc().rstrip()), file=sys.stderr, flush=True)


logger = _Logger()


# ---- asyncio ----

_tasks = []


async def _awaited(x):
    return await x


def run_async(awaitable):
    """Runs a coroutine to its end and returns its result. In a script that awaits at the top it
    starts the coroutine and returns something to await; the script ends after it."""
    import asyncio
    loop = _loop()
    if loop is None:
        return asyncio.run(_awaited(awaitable))
    task = loop.create_task(_awaited(awaitable))
    _tasks.append(task)
    return task


def _drive(body):
    import asyncio

    async def main():
        await body
        while _tasks:
            await _tasks.pop(0)

    asyncio.run(main())


def _finish():
    # A call whose result was not used was made all the same: wait for it, and report a failure. Returns
    # whether one failed.
    failed = False
    if _bus is None or os.getpid() != _bus.pid:
        return failed
    for pending in list(_bus.open.values()):
        try:
            pending._take()
        except ToolError as e:
            print("waldo: a call that was not awaited failed: %s" % e, file=sys.stderr)
            failed = True
    return failed


# ---- names ----

def _install(space, names):
    """Puts the names of this module in a script's globals, and makes `import mcp_codegen.runtime`
    and `import servers.NAME.TOOL` work."""
    import builtins
    for name in names:
        if not hasattr(builtins, name):
            space[name] = Server(name)
    me = sys.modules["waldo"]
    for name in ("servers", "search_tools", "workspace", "logger", "scrub", "run_async", "show", "ToolError", "Denied",
                 "Waiting"):
        space[name] = getattr(me, name)
    module = type(sys)
    for path in ("mcp_codegen", "mcp_codegen.runner", "mcp_codegen.runner.privacy"):
        m = sys.modules[path] = module(path)
        m.__path__ = []
        m.scrub = scrub
    sys.modules["mcp_codegen.runtime"] = sys.modules["mcp_codegen"].runtime = me
    sys.modules["mcp_codegen"].runner = sys.modules["mcp_codegen.runner"]
    sys.modules["mcp_codegen.runner"].privacy = sys.modules["mcp_codegen.runner.privacy"]
    sys.meta_path.append(_Finder)


def _wrap_json():
    # json.loads(result) reads the text of a result, whose len() may be that of its rows.
    import json
    decode = json.JSONDecoder.decode

    def of_text(self, s, *rest):
        if isinstance(s, Result):
            s = s._take() if type(s) in (Pending, Held) else s
            s = str.__str__(s)
        return decode(self, s, *rest)
    json.JSONDecoder.decode = of_text


class _Finder:
    """Makes modules for `servers`, `servers.NAME` and `servers.NAME.TOOL` as they are imported."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] != "servers" or name.count(".") > 2:
            return None
        from importlib.machinery import ModuleSpec
        return ModuleSpec(name, _Finder, is_package=name.count(".") < 2)

    @staticmethod
    def create_module(spec):
        return _Module(spec.name)

    @staticmethod
    def exec_module(m):
        parts = m.__name__.split(".")
        if len(parts) == 2:
            m.SERVER_URL = "waldo:" + parts[1]
        if len(parts) == 3:
            m.call, m.Params = Tool(".".join(parts[1:])), Params
            m.SERVER_URL = "waldo:" + parts[1]


class _Module(type(sys)):
    def __getattr__(self, name):
        parts = self.__name__.split(".")[1:]
        if name[:2] == "__" or len(parts) > 1:
            raise AttributeError("module %r has no attribute %r" % (self.__name__, name))
        return Tool("%s.%s" % (parts[0], name)) if parts else Server(name)

    def __call__(self, *args, **fields):  # from servers.github import create_issue
        return Tool(".".join(self.__name__.split(".")[1:]))(*args, **fields)
