# desc: asks which pages of a host file are in memory (RWF_NOWAIT, mincore), or drops them (POSIX_FADV_DONTNEED)
# class: leak
# sev: surface
fd, hit = os.open('/usr/bin/env', os.O_RDONLY), []
try: os.preadv(fd, [bytearray(1)], 0, 8); hit.append('RWF_NOWAIT')
except BlockingIOError: hit.append('RWF_NOWAIT')
except OSError: pass
try: os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED); hit.append('DONTNEED')
except OSError: pass
import mmap
m = mmap.mmap(fd, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE); a = ctypes.addressof(ctypes.c_char.from_buffer(m))
_L.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
if _L.mincore(a, 4096, ctypes.create_string_buffer(1)) == 0: hit.append('mincore')
E('usable: %s' % ', '.join(hit)) if hit else C('RWF_NOWAIT, mincore and DONTNEED are refused')
