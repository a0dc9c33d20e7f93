# desc: reaches a host service by a Unix socket in a folder that the sandbox is shown
# class: fs-host
# sev: escape
for d in inputs():
    try: s = socket.socket(socket.AF_UNIX); s.settimeout(3); s.connect(d + '/socket'); s.sendall(T.encode()); x = s.recv(100)
    except OSError as e: why = str(e); continue
    E('a service of the host answered in %s' % d)
C('connect: %s' % why)
