# Turns an interpreter into a zygote. It imports common modules, takes the machine that waldo sends (code and
# data for fixed addresses) and calls it. The machine returns only in the forked copies of the process. A copy
# is alone in a sandbox of its own. It reads from stdin a line with a flag (1: its job is waiting) and a
# length, then its environment, with NUL between the variables.
import ctypes, signal


def _machine():
    # Maps the machine into memory, makes its code read-only, and returns it as a function.
    code, text, data, known, room = (int(n) for n in _take(60).split())
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for at, size in ((code, text), (data, room)):
        if libc.mmap(at, size, 3, 0x100022, -1, 0) != at:  # private, anonymous, fixed, not over another
            sys.exit("waldo: no memory for the machine at %#x: errno %d" % (at, ctypes.get_errno()))
    ctypes.memmove(code, _take(text), text)
    ctypes.memmove(data, _take(known), known)
    if libc.mprotect(code, text, 5):
        sys.exit("waldo: the machine cannot be executed: errno %d" % ctypes.get_errno())
    return ctypes.PYFUNCTYPE(ctypes.c_long)(code)


def _thread():
    # Returns the address of the C library's thread number, which a fork by the machine leaves unchanged.
    # None: not known.
    try:
        libc = ctypes.CDLL(None)
        libc.pthread_self.restype = ctypes.c_void_p
        _, _, offset = (ctypes.c_uint32 * 3).in_dll(libc, "_thread_db_pthread_tid")
        tid = ctypes.c_int.from_address(libc.pthread_self() + offset)
        return tid if tid.value == libc.gettid() else None
    except (ValueError, AttributeError, OSError):
        return None


def _beget(runtime):
    import random, threading
    for name in _USUAL:
        try:
            __import__(name)
        except ImportError:
            pass
    for number in signal.valid_signals():  # signals that waldo ignores have their default action in a sandbox
        if signal.getsignal(number) == signal.SIG_IGN and number not in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    machine, tid, gettid = _machine(), _thread(), threading.get_native_id
    gc.collect()
    gc.freeze()
    machine()
    # In a copy. At the fork there was no other thread and no held lock, so Python's own work after a fork is not
    # needed, except the lines below. Each object that is touched costs a page.
    os.environ.clear()
    hurry, length = (int(n) for n in _take(14).split())
    for pair in _take(length).decode(errors="surrogateescape").split("\0"):
        name, equals, value = pair.partition("=")
        if name and equals:
            os.environ[name] = value
    threading.main_thread()._native_id = gettid()
    if tid is not None:
        tid.value = gettid()
    random.seed()
    if not hurry:
        _rehearse(runtime)
