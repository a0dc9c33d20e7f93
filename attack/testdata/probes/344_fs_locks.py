# desc: a lock of a host process is seen on a file of /usr or of a folder that the sandbox is shown
# class: leak
# sev: leak
import fcntl
for p in ['/usr/bin/env'] + [d + '/data' for d in inputs()]:
    try: fcntl.flock(os.open(p, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError: E('%s is locked by the host' % p)
    except OSError as e: pass
C('no lock of the host is seen')
