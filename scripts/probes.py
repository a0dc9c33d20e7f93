"""Puts the verdicts of the probes into SECURITY.md, between its markers, and judges them.

usage: probes.py PATTERN VERDICTS.json...   with a pattern nothing is written
"""
import collections, json, os, platform, sys

BEGIN, END = '<!-- probes:begin -->', '<!-- probes:end -->'


def table(runs):
    """One line for each class of probe: how many were contained, for each way to start."""
    classes = collections.OrderedDict()
    for name, results in runs:
        for r in results:
            c = classes.setdefault(r['cls'], collections.OrderedDict())
            c.setdefault(name, []).append(r['verdict'])
    out = ['| class | probes | ' + ' | '.join('started by ' + n for n, _ in runs) + ' |', '|---|--:|' + '---|' * len(runs)]
    for cls in sorted(classes):
        cells, count = [], 0
        for name, _ in runs:
            v = classes[cls].get(name, [])
            count = max(count, len(v))
            cells.append(', '.join('%d %s' % (n, w.lower()) for w, n in sorted(collections.Counter(v).items())))
        out.append('| %s | %d | %s |' % (cls, count, ' | '.join(cells)))
    return out


def main():
    pattern, files = sys.argv[1], sys.argv[2:]
    runs = [({'root': 'root', 'user': 'an ordinary user'}[os.path.basename(os.path.dirname(f))], json.load(open(f))['results']) for f in files]
    bad = [(n, r) for n, rs in runs for r in rs if r['verdict'] in ('ESCAPED', 'NOVERDICT', 'KILLED')]
    unasked = [(n, r) for n, rs in runs for r in rs if r['verdict'] == 'N/A']
    text = ['', 'Driver `namespace`, kernel %s, %s. `make probes` runs them and writes this table.' % (platform.release(), platform.machine()), '']
    text += table(runs) + ['']
    for n, r in bad + unasked:
        text.append('- %s, started by %s: %s. %s' % (r['id'], n, r['verdict'].lower(), r['why'][:120].replace('|', '/')))
    text.append('' if bad or unasked else 'No probe got out, and none was left unanswered.')
    if not pattern and os.path.exists('SECURITY.md'):
        s = open('SECURITY.md').read()
        if BEGIN in s and END in s:
            s = s[:s.index(BEGIN) + len(BEGIN)] + '\n' + '\n'.join(text).rstrip() + '\n\n' + s[s.index(END):]
            open('SECURITY.md', 'w').write(s)
    total = sum(len(rs) for _, rs in runs)
    contained = sum(r['verdict'] == 'CONTAINED' for _, rs in runs for r in rs)
    print('probes: %d runs, %d contained, %d escaped, %d without a verdict, %d that do not apply here' % (
        total, contained, sum(r['verdict'] == 'ESCAPED' for _, r in bad), sum(r['verdict'] != 'ESCAPED' for _, r in bad), len(unasked)))
    sys.exit(1 if bad or contained == 0 else 0)


main()
