# Stands between the functions of boot.py and its start where the interpreter is WebAssembly (WASI): there are no
# threads, no processes and no sockets, and the bridge is a file.
import select, time


def _device(name):
    try:
        return os.open("/dev/" + name, os.O_RDWR)
    except OSError:
        return -1


sys._waldo_bridge, _clock = _device("bridge"), _device("clock")  # no bridge: this run has no tools
_poll = getattr(select, "select", None)


def _select(read, write, error, timeout=None):
    # WASI's poll does not know the bridge: a read at an offset waits so many microseconds for input.
    if list(read) != [sys._waldo_bridge]:
        return _poll(read, write, error, timeout)
    patience = 1 << 50 if timeout is None else max(0, int(timeout * 1e6))
    return (read if os.pread(sys._waldo_bridge, 1, patience) else []), [], []


def _sleep(seconds):
    # The C library sleeps until a time, which wazero does not support.
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    os.pread(_clock, 1, int(seconds * 1e6))


select.select, time.sleep = _select, _sleep
for _absent in ("set_inheritable",):
    if not hasattr(os, _absent):
        setattr(os, _absent, lambda *_: None)


class _Events:
    """Has asyncio's loop wait for the bridge and for timers: the usual one needs a pair of sockets."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "asyncio.unix_events":
            from importlib.machinery import ModuleSpec
            return ModuleSpec(name, _Events)

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        from asyncio import base_events, events

        class SelectorEventLoop(base_events.BaseEventLoop):
            _reader = None

            def __init__(self):
                super().__init__()
                self._selector = self

            def select(self, timeout):
                if self._reader is not None:
                    return [self._reader] if _select([sys._waldo_bridge], [], [], timeout)[0] else []
                if timeout is None:
                    raise RuntimeError("the program waits for something that nothing will bring")
                time.sleep(timeout)
                return []

            def _process_events(self, ready):
                for handle in ready:
                    self._add_callback(handle)

            def _write_to_self(self):
                pass

            def add_reader(self, fd, callback, *args):
                self._reader = events.Handle(callback, args, self, None)

            def remove_reader(self, fd):
                there, self._reader = self._reader is not None, None
                return there

            def run_in_executor(self, executor, func, *args):
                # There are no threads: the function runs now.
                future = self.create_future()
                try:
                    future.set_result(func(*args))
                except Exception as e:
                    future.set_exception(e)
                return future

        class DefaultEventLoopPolicy(events.BaseDefaultEventLoopPolicy):
            _loop_factory = SelectorEventLoop

        module.SelectorEventLoop, module.DefaultEventLoopPolicy = SelectorEventLoop, DefaultEventLoopPolicy
        module.__all__ = ("SelectorEventLoop", "DefaultEventLoopPolicy")


sys.meta_path.insert(0, _Events)


def _packages():
    # The job is there: its environment and its files are.
    import json
    sys.path_importer_cache.clear()
    with open("/dev/environment") as f:
        os.environ.update(json.load(f) or {})
    os.chdir("/workspace")


for _name in ("json", "re", "collections", "datetime", "asyncio", "traceback", "linecache"):
    __import__(_name)
