# desc: writes to a host process, or reads from one, by a pipe in a folder that the sandbox is shown
# class: fs-host
# sev: escape
why = []
for d in inputs():
    try: os.write(os.open(d + '/in', os.O_WRONLY | os.O_NONBLOCK), T.encode()); E('wrote to a reader of the host in %s' % d)
    except OSError as e: why.append(str(e))
    try:
        x = os.read(os.open(d + '/out', os.O_RDONLY | os.O_NONBLOCK), 100)
        if x: E('read %r of the host in %s' % (x[:20], d))
    except OSError as e: why.append(str(e))
C('; '.join(why))
