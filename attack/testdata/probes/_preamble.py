# ---- probe preamble (prepended by the runner; CTX is filled in by it) ----
import os, sys, ctypes, errno, struct, signal, time, socket, json
CTX = json.loads(r'''@@CTX@@''')
T = CTX.get('token', 'none'); LIM = CTX.get('lim', {}); PH = CTX.get('phase', 1); ROLE = CTX.get('role', 'main')
_done = [0]
def _out(v, w):
    if not _done[0]:
        _done[0] = 1
        w = ' '.join(str(w).split())[:300]
        try: os.write(1, ('\n' if CTX.get('nl') else '').encode() + ('%s %s\n' % (v, w)).encode('utf-8', 'backslashreplace'))
        except OSError: pass
    os._exit(0)
def C(w): _out('CONTAINED', w)
def E(w): _out('ESCAPED', w)
def NA(w): _out('N/A', w)
sys.excepthook = lambda t, v, tb: NA('probe error %s: %s (line %s)' % (t.__name__, v, tb and tb.tb_lineno))
try:
    _L = ctypes.CDLL(None, use_errno=True); _L.syscall.restype = ctypes.c_long
except Exception as _x:
    _L = None
_A = {'x86_64': 0, 'aarch64': 1}.get(os.uname().machine, -1)
@@SYS@@
def sc(name, *a):
    """raw system call; returns value or -errno"""
    if _L is None: NA('no ctypes')
    n = _SYS[name][_A] if _A >= 0 else -1
    if n < 0: NA('no syscall %s on %s' % (name, os.uname().machine))
    return rawsc(n, *a)
def rawsc(n, *a):
    b = [ctypes.c_long(x) if isinstance(x, int) else ctypes.c_char_p(x) if isinstance(x, bytes) or x is None else x for x in a]
    ctypes.set_errno(0)
    r = _L.syscall(ctypes.c_long(n), *b)
    return -ctypes.get_errno() if r == -1 and ctypes.get_errno() else r
def en(r): return errno.errorcode.get(-r, str(r)) if r < 0 else 'ok(%d)' % r
def denied(r): return r in (-errno.EPERM, -errno.EACCES, -errno.ENOSYS)
def surface(name, *a, **k):
    """contained iff the call is refused before its arguments are looked at"""
    r = sc(name, *a)
    if denied(r) or -r in k.get('also', ()): C('%s refused: %s' % (name, en(r)))
    if r >= 0 and k.get('closefd'): os.close(r)
    E('%s reached the kernel: %s' % (name, en(r)))
def inchild(fn, secs=10):
    """run fn in a forked child, return its str result ('' if it died)"""
    rd, wr = os.pipe()
    try: pid = os.fork()
    except OSError as x: return 'nofork %s' % x
    if pid == 0:
        os.close(rd); sys.excepthook = None
        try: s = str(fn())
        except BaseException as x: s = 'EXC %s %s' % (type(x).__name__, x)
        try: os.write(wr, s.encode()[:4000])
        finally: os._exit(0)
    os.close(wr); out = b''; end = time.time() + secs
    import select
    while time.time() < end:
        if select.select([rd], [], [], 0.2)[0]:
            d = os.read(rd, 4096)
            if not d: break
            out += d
    os.close(rd)
    try:
        os.kill(pid, 9)
    except OSError: pass
    try: os.waitpid(pid, 0)
    except OSError: pass
    return out.decode(errors='replace')
def status(k, pid='self'):
    try:
        for l in open('/proc/%s/status' % pid):
            if l.startswith(k + ':'): return l.split(':', 1)[1].strip()
    except OSError as x: pass
    return None
def rd(p, n=4096):
    fd = os.open(p, os.O_RDONLY | os.O_NONBLOCK)
    try: return os.read(fd, n)
    finally: os.close(fd)
def wdirs():
    """directories this process may write to"""
    out = []
    try: cw = os.getcwd()
    except OSError: cw = ''
    for d in [cw, os.environ.get('HOME', ''), os.environ.get('TMPDIR', ''), '/tmp', '/var/tmp', '/dev/shm', '/run', '/workspace', '/home', '/dev/mqueue', '/run/lock', '/run/user/%d' % os.getuid()]:
        if not d or d in out or (CTX.get('bare') and d in ('/workspace', '/home')): continue
        p = os.path.join(d, '.atk-%s-w%d' % (T, os.getpid()))
        try:
            fd = os.open(p, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600); os.close(fd); os.unlink(p); out.append(d)
        except OSError: pass
    return out
def inputs():
    """names that the folder that the sandbox is shown may have here"""
    home = os.environ.get('HOME', '')
    return [d for d in dict.fromkeys(['/workspace/input', os.path.join(os.path.dirname(home), 'input'), CTX['input']]) if os.path.isdir(d)] or NA('no folder is shown')
def procs():
    try: return [int(x) for x in os.listdir('/proc') if x.isdigit()]
    except OSError: return []
def launchers():
    """pids between this process and the runner, and pid 1 of a private pid namespace"""
    o, p = [], os.getpid()
    while p > 1 and len(o) < 12:
        try: p = int(open('/proc/%d/stat' % p).read().rsplit(')', 1)[1].split()[1])
        except (OSError, ValueError): break
        if p: o.append(p)
        if p in CTX['runner_pids']: break
    if len(procs()) < 40 and 1 not in o: o.append(1)
    return o
# ---- probe ----
