# Runs cells of code in one resident Python inside a sandbox. Started as `python3 -I -S -c <this>`. A cell
# arrives on stdin as a line with its length and the number of bytes of each stream to return, then the code.
# The answer goes to stdout the same way, as JSON: stdout, stderr, ok, and content, the blocks of figures and
# tables. What the cell and its programs write to standard output goes ahead of it, as it comes: each piece after a line
# with + and its length. waldo trusts all of it no more than the output of any code.
import os, sys

_MOST = 4 << 20  # bytes of one figure or table
_APART = os.environ.pop("WALDO_VALUES", "") == "apart"  # a value is a block of its own, and is not printed
_answer = os.dup(1)


def _send(head, data):
    data = head % len(data) + data
    while data:
        data = data[os.write(_answer, data):]


def _watcher():
    # Starts the process that sends ahead what a cell has written to its file so far, and returns the socket to it: a byte
    # with a descriptor begins, and another ends, which it answers. It is no child of this process, so code that waits for
    # its children does not meet it.
    import socket
    ours, its = socket.socketpair()
    child = os.fork()
    if child:
        its.close()
        os.waitpid(child, 0)
        return ours
    if os.fork():
        os._exit(0)
    ours.close()
    while True:
        data, files, _, _ = socket.recv_fds(its, 1, 1)
        if not data or not files:
            os._exit(0)
        at, over = 0, False
        while not over:
            part = os.pread(files[0], 4000, at)
            at += len(part)
            if part:
                _send(b"+%10d\n", part)
            its.settimeout(0 if part else 0.05)  # a program that goes on writing does not hide the end
            try:
                its.recv(1)
                over = True
            except (socket.timeout, BlockingIOError):
                pass
        os.close(files[0])
        its.settimeout(None)
        its.send(b".")


def _take(fd, n):
    parts = []
    while n > 0:
        part = os.read(fd, min(n, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def _site():
    # Adds the machine's packages to sys.path, without the start-up code that site would run for them.
    if os.path.isdir("/opt/waldo/python"):  # of a built template
        import site
        site.addsitedir("/opt/waldo/python")
    here = "python%d.%d" % sys.version_info[:2]
    for base in ("/usr/local/lib/" + here, "/usr/local/lib/python3", "/usr/lib/" + here, "/usr/lib/python3"):
        for leaf in ("/dist-packages", "/site-packages"):
            if os.path.isdir(base + leaf):
                sys.path.append(base + leaf)
    sys.path.append("/workspace/input")


def _do(code, space):
    if code.co_flags & 0x80:  # it awaits at its top level
        global _loop
        if _loop is None:
            import asyncio
            _loop = asyncio.new_event_loop()
        return _loop.run_until_complete(eval(code, space))
    return eval(code, space)


_loop = None


def _block(value):
    # Returns the blocks that display a value: a picture, a table, or else its repr.
    import base64
    if _is_table(value):
        return {"type": "text", "text": _table(value)}
    for name in ("_repr_png_", "_repr_html_"):
        show = getattr(type(value), name, None)
        data = show(value) if callable(show) else None
        if isinstance(data, bytes) and len(data) <= _MOST:
            return {"type": "image", "mimeType": "image/png", "data": base64.b64encode(data).decode()}
        if isinstance(data, str) and len(data) <= _MOST:
            return {"type": "text", "text": data}
    if _APART:
        return {"type": "text", "text": repr(value)[:_MOST]}
    print(repr(value))


_shown = []  # blocks of the figures that the cell has shown


def _picture(figure):
    import base64, io
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    if picture.tell() <= _MOST and len(_shown) < 8 and sum(len(b["data"]) for b in _shown) < _MOST:
        _shown.append({"type": "image", "mimeType": "image/png", "data": base64.b64encode(picture.getvalue()).decode()})


def _figures():
    plot = sys.modules.get("matplotlib.pyplot")
    if plot is not None:
        plot.show()  # what is open
    blocks = _shown[:]
    _shown.clear()
    return blocks


def _run(source, name, space):
    import ast, linecache
    linecache.cache[name] = (len(source), None, [line + "\n" for line in source.splitlines()], name)
    tree, last = ast.parse(source, name), None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    _do(compile(tree, name, "exec", flags=0x2000, dont_inherit=True), space)
    blocks = []
    if last is not None:
        value = _do(compile(last, name, "eval", flags=0x2000, dont_inherit=True), space)
        if value is not None:
            space["_"] = value
            blocks.append(_block(value))
    return [b for b in blocks if b] + _figures()


def _cell(source, name, space):
    try:
        return 0, _run(source, name, space)
    except SystemExit as e:
        if e.code is None or isinstance(e.code, int):
            return (e.code or 0) & 0xff, []
        print(e.code, file=sys.stderr)  # as an interpreter prints it at its end
        return 1, []
    except BaseException as e:
        import traceback
        shown = traceback.TracebackException.from_exception(e)
        names = [f.filename for f in shown.stack]
        shown.stack[:] = shown.stack[names.index(name):] if name in names else []
        print("".join(shown.format()), end="", file=sys.stderr)
        return 1, []


def _main():
    import json
    try:
        import socket
        watcher = _watcher()
    except (ImportError, OSError):
        watcher = None  # the output comes with the answer alone
    _site()
    _prepare_plots(_picture)
    ask = os.dup(0)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    main = sys.modules["__main__"] = type(sys)("__main__")
    main.show = show
    cell = 0
    while True:
        length, most = (int(n) for n in _take(ask, 24).split())
        source = _take(ask, length).decode()
        cell += 1
        sinks = []
        for fd in (1, 2):
            sink = os.open("/workspace/tmp", os.O_RDWR | os.O_TMPFILE, 0o600)
            os.dup2(sink, fd)
            sinks.append(sink)
        try:
            if watcher:
                socket.send_fds(watcher, [b"+"], [sinks[0]])
        except OSError:
            watcher = None  # the code has ended it
        code, blocks = _cell(source, "<cell %d>" % cell, main.__dict__)
        try:
            if watcher:
                watcher.send(b".")
                watcher.recv(1)
        except OSError:
            watcher = None
        texts = []
        for stream, sink in ((sys.stdout, sinks[0]), (sys.stderr, sinks[1])):
            try:
                stream.flush()
            except Exception:
                pass
            os.lseek(sink, 0, 0)
            text = b""
            while len(text) <= most:
                part = os.read(sink, most + 1 - len(text))
                if not part:
                    break
                text += part
            texts.append(text.decode("utf-8", "replace"))
            os.close(sink)
        data = json.dumps({"code": code, "stdout": texts[0], "stderr": texts[1], "content": blocks}).encode()
        _send(b"%11d\n", data)


_main()
