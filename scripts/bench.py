"""Puts the figures of sandboxes into BENCHMARKS.md, between its markers.

usage: bench.py OUTPUT-OF-GO-TEST
"""
import os, platform, re, sys

BEGIN, END = '<!-- sandbox:begin -->', '<!-- sandbox:end -->'


def rows(text):
    """name, {unit: value} of each line of a benchmark."""
    for line in text.splitlines():
        m = re.match(r'Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)', line)
        if m:
            words = m.group(2).split()
            yield m.group(1), dict(zip(words[1::2], map(float, words[0::2])))


def egress(v):
    """lines about egress, each beside the direct connection in the same run."""
    out = []
    for kind, goal in (('raw', ' (goal 80 %)'), ('http', '')):
        a, b = v.get('Throughput/%s/direct' % kind), v.get('Throughput/%s/egress' % kind)
        if a and b:
            out.append('- Egress, %s: %.1f GB/s, direct %.1f GB/s on the same processors: %.0f %%%s.'
                       % (kind, b['MB/s'] / 1e3, a['MB/s'] / 1e3, 100 * b['MB/s'] / a['MB/s'], goal))
    a, b = v.get('Connect/direct'), v.get('Connect/egress')
    if a and b:
        out.append('- Egress, connect and first byte: %.0f µs, direct %.0f µs.' % (b['ns/op'] / 1e3, a['ns/op'] / 1e3))
    a, b = v.get('Inside/direct'), v.get('Inside/injecting')
    if a and b:
        out.append('- Egress, TLS decrypted and a secret added, each request: p50 +%.2f ms, p99 +%.2f ms beside direct TLS (goals 0.3 and 3).'
                   % ((b['p50-us'] - a['p50-us']) / 1e3, (b['p99-us'] - a['p99-us']) / 1e3))
    if 'Hundred' in v:
        out.append('- Egress, 100 such connections, with their clients: %.1f MB (goal 20).' % v['Hundred']['MB/100'])
    return out


def engine(v):
    """lines about the level engine."""
    out = []
    if 'WarmEngine' in v:
        out.append('- `engine`, a fresh JavaScript program with 20 servers bound, prewarmed: p50 %.2f ms, p99 %.2f ms (goal: p50 1).'
                   % (v['WarmEngine']['p50-ms'], v['WarmEngine']['p99-ms']))
    if 'WarmEngineTypeScript' in v and 'WarmEngineRefill' in v:
        out.append('- `engine`, the same in TypeScript: p50 %.2f ms; in JavaScript while the pool makes further processes: p50 %.2f ms.'
                   % (v['WarmEngineTypeScript']['p50-ms'], v['WarmEngineRefill']['p50-ms']))
    if 'Suspend' in v and 'Resume' in v:
        out.append('- `engine`, a program that waits for two calls: written down in %.2f ms and %.0f KB (goals 1 and 200), on from there to its end in %.2f ms (goal 2).'
                   % (v['Suspend']['ns/op'] / 1e6, v['Suspend']['bytes'] / 1e3, v['Resume']['ns/op'] / 1e6))
    if 'TenThousand' in v:
        out.append('- `engine`, 10,000 suspended programs: %.1f MB of memory (goal 100), %.0f MB on disk.'
                   % (v['TenThousand']['MB'], v['TenThousand']['disk-MB']))
    return out


def catalogue(v):
    """lines about the list of tools."""
    out = []
    a, b = v.get('FirstList/1x10000'), v.get('FirstList/50x200')
    if a and b:
        out.append('- First list of 10,000 tools, processor time: %.0f ms of one server, %.0f ms of 50 that answer one after another (goal 3,000).'
                   % (a['cpu-ms'], b['cpu-ms']))
    if 'Storm' in v:
        out.append('- A server that announces changes of its list without a pause, beside 10,000 tools: %.2f %% of a processor (goal 1), %.0f changes announced to hosts.'
                   % (v['Storm']['cpu-%'], v['Storm']['told']))
    if 'Servers' in v:
        out.append('- First list of 50 servers of 20 tools, each a Python in a sandbox: %.1f s (goal 3).' % v['Servers']['s/list'])
    if 'Search10000' in v:
        out.append('- A search among 10,000 tools: p50 %.0f µs, p99 %.0f µs (goal 1,000).' % (v['Search10000']['p50-µs'], v['Search10000']['p99-µs']))
    return out


def main():
    text = open(sys.argv[1]).read()
    out = ['', 'Kernel %s, %s, %d processors. Milliseconds, from the job to its output and its facts.'
           % (platform.release(), platform.machine(), os.cpu_count()), '',
           '| run | p50 | p99 | bare p50 | times faster than bare |', '|---|--:|--:|--:|--:|']
    tail = []
    for name, v in rows(text):
        name = name.replace('_', ' ').replace('/', ': ')
        if 'x-faster' in v:
            out.append('| %s | %.2f | %.2f | %.2f | %.2f |' % (name, v['warm-p50-ms'], v['warm-p99-ms'], v['bare-p50-ms'], v['x-faster']))
        elif 'runs/s' in v:
            tail.append('- Sustained, two at a time, all namespaces kept: %.0f runs/s; the bare interpreter, two at a time: %.0f (%.1f times); `/bin/true` in seven fresh namespaces and nothing else: %.0f.'
                        % (v['runs/s'], v['bare-runs/s'], v['x-bare'], v['floor-runs/s']))
        elif 'MB/sandbox' in v:
            tail.append('- Memory of one waiting Python sandbox, all usual modules imported: %.1f MB of its own, %.1f MB with its share of the pages of its zygote.' % (v['MB/sandbox'], v['PSS-MB/sandbox']))
        elif 'overhead-ms' in v:
            tail.append('- A cold sandbox around `/bin/true`, %s: %.2f ms beside %.2f ms, %.2f ms more (p99 %.2f).' % (name.split(': ')[1], v['sandboxed-p50-ms'], v['bare-p50-ms'], v['overhead-ms'], v['boxed-p99-ms']))
    out += [''] + tail + egress(dict(rows(text))) + catalogue(dict(rows(text))) + engine(dict(rows(text))) + ['']
    s = open('BENCHMARKS.md').read()
    s = s[:s.index(BEGIN) + len(BEGIN)] + '\n'.join(out) + '\n' + s[s.index(END):]
    open('BENCHMARKS.md', 'w').write(s)


main()
