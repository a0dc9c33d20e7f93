# What makes an interpreter a zygote: it imports what scripts like to import, takes a machine that
# waldo gives it (code and data, for fixed addresses) and calls it. The machine never returns here,
# but in every copy of the process that it makes, which is then alone in a box of its own and reads
# from stdin a line of a flag (1: its job is waiting) and a length, and its environment, with NUL
# between the variables.
import ctypes, signal


def _machine():
    # Puts the machine into memory and returns it as a function. Its code can then not be written to.
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
    # Where the C library keeps the number of its only thread, which it does not learn of a fork
    # that is not its own; None: not known.
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
    for number in signal.valid_signals():  # what waldo was told to ignore, no box is
        if signal.getsignal(number) == signal.SIG_IGN and number not in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    machine, tid, gettid = _machine(), _thread(), threading.get_native_id
    gc.collect()
    gc.freeze()
    machine()
    # A copy, to which it is as if nothing had been: there was no other thread, and no lock held. So
    # nothing is done that fork does but what follows, for every object touched costs a page.
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
