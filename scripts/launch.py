#!/usr/bin/env python3
"""What a command costs in a session of waldo launch, beside the same command outside, in bubblewrap and in
sandbox-runtime. Writes a table between the markers of BENCHMARKS.md (or to stdout, with --print).

A session of each kind waits; the kinds run the command in turns, so that other work on the machine meets all alike.
Processor time is that of the command and what it waited for. Needs bin/waldo, and bwrap and srt where they are compared.
usage: launch.py [--print] [--rounds N] [--only NAME,...]
"""
import argparse, json, os, platform, re, resource, shutil, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WALDO = os.path.join(HERE, 'bin', 'waldo')
BEGIN, END = '<!-- launch:begin -->', '<!-- launch:end -->'


def work():
    """runs the commands that come in as lines, and says what each cost."""
    for line in sys.stdin:
        before, run = json.loads(line)
        if before:
            subprocess.run(['bash', '-ec', before], check=True, stdout=subprocess.DEVNULL)
        a, t = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        p = subprocess.run(['bash', '-ec', run], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        wall, b = time.monotonic() - t, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime
        print(json.dumps([wall, cpu, p.stderr.decode(errors='replace')[-300:] if p.returncode else '']), flush=True)


def user():
    """becomes the first ordinary user, whose project it is: waldo started by root does the same."""
    if os.getuid() == 0:
        os.setgroups([]), os.setgid(1000), os.setuid(1000)


def kinds(home, dir, srt):
    """the ways to start a program: name, argv before it, whether it becomes the user."""
    bwrap = ['bwrap', '--unshare-all', '--new-session', '--die-with-parent', '--ro-bind', '/usr', '/usr', '--symlink', 'usr/bin',
             '/bin', '--symlink', 'usr/lib', '/lib', '--symlink', 'usr/lib64', '/lib64', '--proc', '/proc', '--dev', '/dev', '--tmpfs',
             '/tmp', '--bind', home, home, '--bind', dir, dir, '--chdir', dir]
    all = {'outside': ([], True), 'keep': ([WALDO, 'launch', '--changes', 'keep', '--command'], False),
           'review': ([WALDO, 'launch', '--changes', 'review', '--command'], False)}
    if shutil.which('bwrap'):
        all['bubblewrap'] = (bwrap, True)
    if srt:
        settings = os.path.join(home, 'srt.json')
        with open(settings, 'w') as f:
            json.dump({'network': {'allowedDomains': [], 'deniedDomains': []},
                       'filesystem': {'denyRead': [], 'allowWrite': [dir, home, '/tmp'], 'denyWrite': []}}, f)
        all['sandbox-runtime'] = ([srt, '--settings', settings], True)
    return all


def argv(kind, start, program):
    return start + [program[0]] + (['--'] if WALDO in start else []) + program[1:]


def environment(root, home):
    return {'HOME': home, 'PATH': '/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin', 'WALDO_STATE': os.path.join(root, 'state'), 'LANG': 'C.UTF-8'}


class Side:
    """a session that waits for commands."""

    def __init__(self, root, kind, dir, srt):
        home = os.path.join(root, 'home-' + kind)
        os.makedirs(home, exist_ok=True)
        os.chown(home, 1000, 1000)
        start, own = kinds(home, dir, srt)[kind]
        self.kind, t = kind, time.monotonic()
        self.p = subprocess.Popen(argv(kind, start, ['/usr/bin/python3', os.path.join(dir, '.bench.py'), 'work']), cwd=dir, text=True,
                                  env=environment(root, home), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, preexec_fn=user if own else None)
        self.run('', 'true')
        self.start = time.monotonic() - t

    def run(self, before, command):
        self.p.stdin.write(json.dumps([before, command]) + '\n')
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            sys.exit('%s ended' % self.kind)
        wall, cpu, wrong = json.loads(line)
        if wrong:
            sys.exit('%s: %s: %s' % (self.kind, command, wrong))
        return wall, cpu

    def end(self):
        t = time.monotonic()
        self.p.stdin.close()
        self.p.wait()
        return time.monotonic() - t


def module(dir):
    """a Go module of 200 packages; each imports the first, so that a change of it compiles all."""
    for i in range(200):
        p = os.path.join(dir, 'p%03d' % i)
        os.makedirs(p)
        others = '' if i == 0 else '"example.com/m/p000"\n'
        body = ''.join('type T%d struct{ A, B int; C map[string][]byte }\nfunc (t *T%d) F(n int) string {\n\tt.A += n\n\t'
                       'sort.Ints([]int{t.A, t.B})\n\treturn fmt.Sprint(t.A, strings.Repeat("x", n), len(t.C))\n}\n' % (k, k) for k in range(5))
        with open(os.path.join(p, 'p.go'), 'w') as f:
            f.write('package p%03d\n\nimport (\n"fmt"\n"sort"\n"strings"\n%s)\n%s%s' % (i, others, body, '' if i == 0 else 'var Run = p000.Run\n'))
        with open(os.path.join(p, 'p_test.go'), 'w') as f:
            f.write('package p%03d\n\nimport "testing"\n\nfunc TestF(t *testing.T) {\n\tif (&T1{}).F(2) == "" {\n\t\tt.Fatal()\n\t}\n}\n' % i)
    with open(os.path.join(dir, 'go.mod'), 'w') as f:
        f.write('module example.com/m\n\ngo 1.21\n')
    with open(os.path.join(dir, 'p000', 'run.go'), 'w') as f:
        f.write('package p000\n\nconst Run = 0\n')
    env = dict(os.environ, GOFLAGS='-mod=mod -trimpath', GOPROXY='off', CGO_ENABLED='0', GOCACHE=os.path.join(dir, '.gocache'))
    subprocess.run(['go', 'build', './...'], cwd=dir, env=env, check=True)
    subprocess.run('go test ./p00* ./p01* > /dev/null', shell=True, cwd=dir, env=env, check=True)


def repository(dir):
    for i in range(50000):
        p = os.path.join(dir, 'd%03d' % (i % 500))
        os.makedirs(p, exist_ok=True)
        with open(os.path.join(p, 'f%05d.txt' % i), 'w') as f:
            f.write('line %d\n' % i * 5)
    git = ['git', '-c', 'gc.auto=0', '-c', 'core.fsync=none', '-c', 'user.name=Ann', '-c', 'user.email=ann@example.com', '-C', dir]
    for args in (['init', '-q'], ['add', '.'], ['commit', '-qm', 'one']):
        subprocess.run(git + args, check=True)


def texts(dir):
    with open('/usr/share/common-licenses/GPL-3') as f:
        text = f.read() * 15
    for i in range(2000):
        with open(os.path.join(dir, 't%04d.txt' % i), 'w') as f:
            f.write('%d %s' % (i, text))


def packages(dir):
    """what scripts/npm pins, and a cache that has it."""
    for name in ('package.json', 'package-lock.json'):
        shutil.copy(os.path.join(HERE, 'scripts', 'npm', name), dir)
    subprocess.run(['npm', 'ci', '--ignore-scripts', '--silent', '--no-audit', '--no-fund', '--cache', 'cache'], cwd=dir, check=True)
    shutil.rmtree(os.path.join(dir, 'node_modules'))


GO = 'export GOFLAGS="-mod=mod -trimpath" GOPROXY=off GOTOOLCHAIN=local CGO_ENABLED=0 GOCACHE=$HOME/gocache; '
EDIT = GO + 'printf "package p000\n\nconst Run = %d\n" $RANDOM > p000/run.go; '
NPM = 'npm ci --ignore-scripts --silent --no-audit --no-fund --offline --cache $HOME/npm'
SEARCH = 'rg -c "Corresponding [Ss]ource w" .' if shutil.which('rg') else 'grep -rc "Corresponding [Ss]ource w" .'
# what fills the folder, what is run once in it, and the commands: name, what is run before each, command; how often
TASKS = {
    'git': (repository, 'true', [('git status, 50,000 files', '', 'GIT_OPTIONAL_LOCKS=0 git status')], 11),
    'search': (texts, 'cat * > /dev/null', [(SEARCH[:2].replace('gr', 'grep -r').replace('rg', 'ripgrep') + ', 1 GB', '', SEARCH)], 5),
    'npm': (packages, 'cp -r cache $HOME/npm', [('npm ci, warm cache', 'rm -rf node_modules', NPM)], 5),
    'go': (module, 'cp -r .gocache $HOME/gocache', [('go build, 200 packages compiled', EDIT, GO + 'go build ./...'),
                                                    ('go test, 20 of them', EDIT + 'go build ./...', GO + 'go test ./p00* ./p01*')], 2),
}


def measure(root, name, rounds, srt):
    fill, once, commands, usual = TASKS[name]
    seed = os.path.join(root, 'seed')
    os.makedirs(seed)
    fill(seed)
    shutil.copy(os.path.abspath(__file__), os.path.join(seed, '.bench.py'))
    subprocess.run(['chown', '-R', '1000:1000', seed], check=True)
    if fill is repository:  # the index knows these files, as after a day's work
        subprocess.run(['git', 'status'], cwd=seed, check=True, stdout=subprocess.DEVNULL, preexec_fn=user, env=environment(root, root))
    sides, dirs = [], []
    for kind in kinds(root, root, srt):
        dir = seed  # nothing writes to it
        if fill in (module, packages):
            dir = os.path.join(root, 'project-' + kind)
            subprocess.run(['cp', '-a', seed, dir], check=True)
            dirs.append(dir)
        sides.append(Side(root, kind, dir, srt))
    for s in sides:
        s.run('', once)
    lines = []
    for label, before, command in commands:
        got = {s.kind: ([], []) for s in sides}
        for turn in range((rounds or usual) + (usual > 2)):
            for s in sides[::1 if turn % 2 else -1]:  # both orders
                cost = s.run(before, command)
                if turn or usual <= 2:  # the first one fills caches
                    got[s.kind][0].append(cost[0]), got[s.kind][1].append(cost[1])
        for kind, cost in got.items():
            ratio = [statistics.median(a / b for a, b in zip(cost[i], got['outside'][i])) for i in (0, 1)]  # of each turn
            lines.append((label, kind, statistics.median(cost[0]), statistics.median(cost[1]), *ratio))
            print(lines[-1], file=sys.stderr, flush=True)
    ends = {s.kind: (s.start, s.end()) for s in sides}
    print(name, ends, file=sys.stderr, flush=True)
    for dir in dirs + [seed]:
        shutil.rmtree(dir)
    return lines, ends


def starts(root, srt, rounds=9):
    """ms from the start of a session to the end of `true` in it, in turns."""
    dir = os.path.join(root, 'small')
    os.makedirs(dir)
    os.chown(dir, 1000, 1000)
    home = os.path.join(root, 'home-start')
    os.makedirs(home)
    os.chown(home, 1000, 1000)
    got = {}
    for i in range(rounds + 1):
        for kind, (start, own) in kinds(home, dir, srt).items():
            t = time.monotonic()
            subprocess.run(argv(kind, start, ['/bin/true']), cwd=dir, env=environment(root, home), check=True, stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=user if own else None)
            if i:
                got.setdefault(kind, []).append(1000 * (time.monotonic() - t))
    return got


def table(lines, ends, begun, load):
    kinds = list(begun)
    out = ['', 'Kernel %s, %d processors, load %.0f when it began and %.0f when it ended. Ratios to the command outside, wall clock and'
           % (platform.release(), os.cpu_count(), load, os.getloadavg()[0]), 'processor time, medians of runs in turns.', '',
           '| command | outside: s, processor s | ' + ' | '.join('`%s`' % k if k in ('keep', 'review') else k for k in kinds[1:]) + ' |',
           '|---|--:|' + '--:|' * (len(kinds) - 1)]
    for name in dict.fromkeys(l[0] for l in lines):
        of = {l[1]: l[2:] for l in lines if l[0] == name}
        out.append('| %s | %.2f, %.2f | ' % (name, *of['outside'][:2]) + ' | '.join('%.2f, %.2f' % of[k][2:4] for k in kinds[1:]) + ' |')
    median = {k: statistics.median(v) for k, v in begun.items()}
    out.append('| a session with `true`, ms | %.0f | ' % median['outside'] + ' | '.join('%.0f' % median[k] for k in kinds[1:]) + ' |')
    for name, of in ends.items():
        out.append('| start and end in the folder of *%s*, s | | ' % name + ' | '.join('%.1f, %.1f' % of[k] for k in kinds[1:]) + ' |')
    return '\n'.join(out + [''])


def write(text, shown):
    if shown:
        return print(text)
    page = os.path.join(HERE, 'BENCHMARKS.md')
    with open(page) as f:
        old = f.read()
    new = re.sub(BEGIN + '.*?' + END, lambda _: BEGIN + text + '\n' + END, old, flags=re.S)
    if new == old:
        sys.exit('launch.py: BENCHMARKS.md has no markers ' + BEGIN)
    with open(page, 'w') as f:
        f.write(new)


def main():
    if sys.argv[1:] == ['work']:
        return work()
    ap = argparse.ArgumentParser()
    ap.add_argument('--print', action='store_true')
    ap.add_argument('--rounds', type=int)
    ap.add_argument('--only', default='')
    ap.add_argument('--srt', default=shutil.which('srt') or '')
    o = ap.parse_args()
    root = tempfile.mkdtemp(prefix='waldo-launch-')
    os.chmod(root, 0o755)
    load, lines, ends = os.getloadavg()[1], [], {}
    try:
        for name in TASKS:
            if name.startswith(tuple(o.only.split(','))):
                got, ends[name] = measure(root, name, o.rounds, o.srt)
                lines += got
        begun = starts(root, o.srt)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    write(table(lines, ends, begun, load), o.print)


main()
