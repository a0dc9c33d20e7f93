# What an agent's code can see: what the mole tells it, and all of its own memory and environment.
# The secrets are looked for one step up in every byte, so that this script does not hold them.
import os

up = bytes((b + 1) % 256 for b in range(256))
needles = [bytes.fromhex(n) for n in "NEEDLES".split()]


def found(data):
    data = data.translate(up)
    return sum(n in data for n in needles)


if "servers" in globals() and os.environ.get("ASK") == "yes":
    for tool in ("tell", "fail"):
        try:
            said = str(getattr(servers.mole, tool)())
        except Exception as e:
            said = repr(e)
        print(tool, said)
        with open("/workspace/output/" + tool + ".txt", "w") as f:
            f.write(said)

env = found(open("/proc/self/environ", "rb").read())
memory, bytes_read = 0, 0
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as mem:
    for line in maps.read().splitlines():
        span, mode = line.split()[:2]
        if "r" not in mode or "[v" in line:
            continue
        start, end = (int(x, 16) for x in span.split("-"))
        at = start
        while at < end:
            try:
                mem.seek(at)
                part = mem.read(min(end - at, (1 << 20) + 256))
            except (OSError, ValueError, OverflowError):
                break
            memory += found(part)
            bytes_read += len(part)
            at += 1 << 20
print("environment %d memory %d of %d bytes" % (env, memory, bytes_read))
