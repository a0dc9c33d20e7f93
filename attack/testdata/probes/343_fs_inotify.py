# desc: inotify reports what processes of the host do with files of /usr or of a folder that the sandbox is shown
# class: leak
# sev: leak
import select
fd = _L.inotify_init1(os.O_NONBLOCK)
if fd < 0: C('inotify_init1: %s' % os.strerror(ctypes.get_errno()))
seen = [p for p in ['/usr/bin/env'] + [d + '/data' for d in inputs()] if _L.inotify_add_watch(fd, p.encode(), 0xfff) >= 0]
if select.select([fd], [], [], 2)[0]: E('saw an event of %s' % seen)
C('no event of %s' % seen)
