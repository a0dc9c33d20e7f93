# Runs one script inside a sandbox. Started as `python3 -I -S -c <this>`. Stdin begins with the part that is
# the same for every script: a line of a flag (1: prepare before the script arrives; 2: become a zygote, see
# zygote.py) and a length, the runtime (waldo.py) of that length, and a byte that is read when all is ready.
# Then come a line of two lengths, NUL-separated words (file name, server names, arguments) and the script.
# They are padded to 1024 bytes, so that most jobs take one read. The rest of stdin is the script's own input.
import gc, itertools, os, sys


def _take(n):
    parts = []
    while n > 0:
        part = os.read(0, min(n, 1 << 20))
        if not part:
            sys.exit("waldo: the script did not arrive")
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def _site():
    # Adds the machine's packages to sys.path, without the start-up code that site would run for them.
    here = "python%d.%d" % sys.version_info[:2]
    for base in ("/usr/local/lib/" + here, "/usr/local/lib/python3", "/usr/lib/" + here, "/usr/lib/python3"):
        for leaf in ("/dist-packages", "/site-packages"):
            if os.path.isdir(base + leaf):
                sys.path.append(base + leaf)
    sys.path.append("/workspace/input")
    import builtins
    builtins.exit = builtins.quit = sys.exit
    builtins.help = _help
    sys.meta_path.insert(0, _Plots)


def _help(*about):
    # The interpreter's own help, which site would have added; it is imported when it is asked.
    import pydoc
    if not about:
        return print("help(servers.NAME.TOOL) describes a tool, dir(servers) lists servers")
    return pydoc.help(*about)


_PACKAGES = "/opt/waldo/python"


def _packages():
    # Puts the packages of a built template before the machine's own. Only a job's sandbox has them: an interpreter
    # that was started ahead has not.
    if _PACKAGES in sys.path or not os.path.isdir(_PACKAGES):
        return
    at = next((i for i, p in enumerate(sys.path) if p.endswith(("/dist-packages", "/site-packages"))), len(sys.path))
    sys.path.insert(at, _PACKAGES)
    if any(name.endswith(".pth") for name in os.listdir(_PACKAGES)):
        import site
        site.addsitedir(_PACKAGES)


class _Plots:
    """Has the library prepare matplotlib as it is imported: see show.py."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "matplotlib":
            sys.meta_path.remove(_Plots)
            _load(_source)._prepare_plots()


def _clean(shown, file):
    # Drops the frames before the script's first own line.
    while shown is not None:
        names = [f.filename for f in shown.stack]
        first = names.index(file) if file in names else 0
        shown.stack[:] = [f for f in shown.stack[first:] if f.filename not in ("<string>", "<waldo>")]
        _clean(shown.__cause__, file)
        shown = shown.__context__


def _report(file, source):
    # Prints the exception being handled, with the script's own lines.
    import linecache, traceback
    linecache.cache[file] = (len(source), None, [line + "\n" for line in source.splitlines()], file)
    shown = traceback.TracebackException(*sys.exc_info())
    _clean(shown, file)
    print("".join(shown.format()), end="", file=sys.stderr)


def _compiled(runtime):
    return compile(runtime, "<waldo>", "exec") if type(runtime) is bytes else runtime


# Code like that of most scripts, run once without output: it touches the interpreter's pages.
_EXERCISE = """
x = {str(i): [i] for i in range(50)}
def f(a, b=1): return a + b
class A: pass
f(len(sorted(x)), b=2)
try: 1 / 0
except Exception as e: str(e)
"".join("%s %r" % i for i in x.items()).encode()
"""


def _ready(runtime):
    # Does the preparation that needs no script, and returns the runtime as code.
    _run("<waldo>", _EXERCISE, runtime, [], {})
    sys.stdout.flush()
    bytearray(1 << 17)
    runtime = _compiled(runtime)
    gc.collect()
    gc.freeze()  # the collector skips the present objects
    return runtime


# Common imports of scripts, in pieces, so that a job never waits long for one.
_USUAL = ("re", "collections", "json", "datetime", "functools", "itertools", "math", "random", "string", "pathlib",
          "dataclasses", "csv", "hashlib", "tempfile", "decimal", "email.message", "email.parser", "ssl", "http.client",
          "urllib.request")


def _idle(runtime):
    # Imports until a job arrives, and then runs it.
    import select
    job = select.poll()
    job.register(0, select.POLLIN)
    if job.poll(50):
        return
    for name in _USUAL:
        try:
            __import__(name)
        except ImportError:
            pass
        if job.poll(0):
            return
    _rehearse(runtime)
    gc.collect()
    gc.freeze()


_runtime = _source = None


def _load(source):
    # Makes the runtime a module, the first time that a script touches it.
    global _runtime
    if _runtime is None:
        _runtime = sys.modules["waldo"] = type(sys)("waldo")
        exec(_compiled(source), _runtime.__dict__)
    return _runtime


_NAMES = ("waldo", "mcp_codegen", "servers", "search_tools", "workspace", "logger", "scrub", "run_async", "show(")


def _tabular(source, file):
    # The script as a tree whose last expression, if it has one, becomes the value of __last__.
    import ast
    tree = ast.parse(source, file)
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = tree.body[-1]
        name = ast.copy_location(ast.Name("__last__", ast.Store()), last)
        tree.body[-1] = ast.copy_location(ast.Assign([name], last.value), last)
    return tree


def _run(file, source, runtime, servers, space):
    global _source
    _source, tables = runtime, "pandas" in source or "polars" in source
    # 0x2000 is ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, 0x80 inspect.CO_COROUTINE: neither module is cheap.
    body = compile(_tabular(source, file) if tables else source, file, "exec", flags=0x2000, dont_inherit=True)
    if any(name in source for name in _NAMES) or any(name in source for name in servers):
        _load(runtime)._install(space, servers)
    try:
        if body.co_flags & 0x80:
            _load(runtime)._drive(eval(body, space))
        else:
            exec(body, space)
        if tables and "__last__" in space:  # as a notebook shows the value of its last line
            last = space.pop("__last__")
            if _load(runtime)._is_table(last):
                print(_runtime._table(last))
    finally:
        # A program with a failed call must not end as a success; its own error or status comes first.
        if _runtime is not None and _runtime._finish() and sys.exc_info()[0] is None:
            sys.exit(1)


def _main():
    warm, runtime = (int(n) for n in _take(14).split())
    runtime = _take(runtime)
    _site()
    if warm:
        runtime = _ready(runtime)
    if warm == 2:
        exec(_take(int(_take(12))), globals())
        _beget(runtime)  # goes on in each sandbox
    try:
        os.set_inheritable(3, False)  # the bridge is the script's, not that of programs it starts
    except OSError:
        pass
    _take(1)
    if warm == 1:
        _idle(runtime)
    job = _take(1024)
    words, script = (int(n) for n in job[:24].split())
    job += _take(24 + words + script - len(job))
    _job(job[24:24 + words], job[24 + words:24 + words + script], runtime)


def _job(words, script, runtime):
    # Runs the script and ends the process with its status.
    _packages()
    file, servers, *args = words.decode().split("\0")
    sys.argv = [file] + args
    main = sys.modules["__main__"] = type(sys)("__main__")
    main.__file__ = file
    try:
        source = script.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError as e:
        sys.exit("waldo: %s is not UTF-8: %s" % (file, e))
    code, known = 0, len(sys.modules)
    try:
        _run(file, source, runtime, servers.split(",") if servers else [], main.__dict__)
    except SystemExit as e:
        code = _status(e.code)
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        sys.stdout.flush()
        _report(file, source)
        code = 1
    _end(code, main.__dict__, known)


def _rehearse(runtime):
    # Runs a job without output and without an exit. It touches the pages of memory that every job needs, so
    # that no job waits for the kernel to copy or make them.
    global _exit
    real, _exit, main, argv = _exit, lambda code: None, sys.modules["__main__"], sys.argv
    imports = "import " + ", ".join(name for name in _USUAL if name in sys.modules)
    nobody, out = os.open("/dev/null", os.O_WRONLY), os.dup(1)
    os.dup2(nobody, 1)
    _job(b"script.py\0", imports.encode() + b"\nprint()\nx = [str(i) for i in (1, 2)]\ndef f(a): return {a: 'b'}\nf(1)\n", runtime)
    os.dup2(out, 1)
    os.close(nobody)
    os.close(out)
    sys.modules["__main__"], sys.argv, _exit = main, argv, real


def _status(code):
    # The exit status that the interpreter would make of sys.exit's argument.
    if code is None or isinstance(code, int):
        return (code or 0) & 0xff
    sys.stdout.flush()
    print(code, file=sys.stderr)
    return 1


def _end(code, space, known):
    # Ends the process as the interpreter would: waits for threads, runs exit functions, releases the script's
    # objects (an open file is written out), and flushes the streams. It skips the interpreter's own
    # finalisation, which takes longer than most scripts.
    try:
        threads = sys.modules.get("threading")
        if threads is not None and (threads.active_count() > 1 or getattr(threads, "_threading_atexits", True)):
            threads._shutdown()
        if "atexit" in sys.modules:
            sys.modules["atexit"]._run_exitfuncs()
        sys.stdout.flush()
        space.clear()
        for module in list(itertools.islice(reversed(sys.modules.values()), max(0, len(sys.modules) - known))):
            if (getattr(module, "__file__", None) or "").startswith("/workspace"):
                module.__dict__.clear()
        gc.collect()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except BaseException:
        sys.exit(code or 120)  # leave it to the interpreter
    _exit(code)


_exit = os._exit
_main()
