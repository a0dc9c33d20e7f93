"""Puts the verdicts of the probes into docs/security/probes.md, between its markers, and judges them.

usage: probes.py PARTIAL DRIVER-USER/verdicts.json...   where PARTIAL is not empty nothing is written
"""
import collections, json, os, platform, sys, textwrap

PAGE = 'docs/security/probes.md'
BEGIN, END = '<!-- probes:begin -->', '<!-- probes:end -->'
DRIVERS = ['namespace', 'gvisor', 'confined', 'launch']
WORDS = {'CONTAINED': 'contained', 'GUEST': 'in its own kernel', 'ESCAPED': 'escaped', 'N/A': 'n/a', 'NOVERDICT': 'no verdict', 'KILLED': 'killed'}


def table(runs, drivers, field):
    """One line for each value of the field: the verdicts in the sandboxes of each driver, of all who started them."""
    lines = collections.defaultdict(lambda: collections.defaultdict(collections.Counter))
    for driver, _, results in runs:
        for r in results:
            lines[r[field]][driver][r['verdict']] += 1
    out = ['| %s | %s |' % ({'cls': 'class', 'sev': 'severity'}[field], ' | '.join('`%s`' % d for d in drivers)), '|---|' + '---|' * len(drivers)]
    for name in sorted(lines):
        cells = [', '.join('%d %s' % (n, WORDS[w]) for w, n in sorted(lines[name][d].items())) for d in drivers]
        out.append('| %s | %s |' % (name, ' | '.join(cells)))
    return out


def main():
    partial, files = sys.argv[1], sys.argv[2:]
    runs = []
    for f in files:
        driver, user = os.path.basename(os.path.dirname(f)).split('-')
        runs.append((driver, {'root': 'root', 'user': 'an ordinary user'}[user], json.load(open(f))['results']))
    runs.sort(key=lambda r: (DRIVERS.index(r[0]), r[1] != 'root'))
    drivers = list(dict.fromkeys(r[0] for r in runs))
    listed = json.load(open('attack/excused.json'))
    excuses = {(e['driver'], e['probe'], e['verdict']): e['why'] for e in listed}
    always = {(e['driver'], e['probe'], e['verdict']) for e in listed if 'sometimes' not in e}
    used, bad, notes = set(), [], []
    for driver, user, results in runs:
        for r in results:
            if r['verdict'] in ('CONTAINED', 'GUEST'):
                continue
            key = (driver, r['id'], r['verdict'])
            used.add(key)
            why = excuses.get(key)
            if why is None and r['verdict'] != 'N/A':
                bad.append(key)
            note = '`%s`, started by %s: %s %s. %s' % (driver, user, r['id'], WORDS[r['verdict']], why or r['why'][:120].replace('|', '/'))
            notes += textwrap.wrap(note, 118, initial_indent='- ', subsequent_indent='  ', break_on_hyphens=False)
    stale = [] if partial else [k for k in always if k not in used]
    text = ['', 'Kernel %s, %s; every probe in a sandbox of root and in one of an ordinary user;\n`launch` is a session of `waldo launch` with the limits of the others. `make probes` runs them and writes this.' % (platform.release(), platform.machine()), '']
    text += table(runs, drivers, 'sev') + [''] + table(runs, drivers, 'cls') + ['']
    text += ['"In its own kernel": the call worked, but it is gVisor\'s kernel that served it, not this machine\'s.', ''] + notes
    text.append('' if notes else 'No probe got out, and none was left unanswered.')
    if not partial and not bad:
        s = open(PAGE).read()
        s = s[:s.index(BEGIN) + len(BEGIN)] + '\n' + '\n'.join(text).rstrip() + '\n\n' + s[s.index(END):]
        open(PAGE, 'w').write(s)
    count = collections.Counter(r['verdict'] for _, _, rs in runs for r in rs)
    for what, rows in (('got out or gave no verdict, unexcused', bad), ('excused for nothing', stale)):
        for row in rows:
            print('probes: %s: %s' % (what, ' '.join(row)))
    print('probes: %d runs, %s; %d unexcused' % (sum(count.values()), ', '.join('%d %s' % (n, WORDS[v]) for v, n in sorted(count.items())), len(bad)))
    sys.exit(1 if bad or stale or count['CONTAINED'] == 0 else 0)


main()
