#!/bin/bash
# tasks.sh: what a coding agent does, each task outside and inside a session of waldo launch, as a table.
# The first run is the control: a task that fails outside says nothing about waldo. Needs bin/waldo (make build).
set -u
if [ "${1:-}" != run ]; then
  waldo=$(cd "$(dirname "$0")/.." && pwd)/bin/waldo
  self=$(realpath "$0")
  work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
  export WALDO_STATE=$work/state GOFLAGS=-mod=mod GOTOOLCHAIN=local
  python3 -c 'import socket,time; s=socket.create_server(("127.0.0.1",0)); print(s.getsockname()[1],flush=True); time.sleep(600)' > "$work/port" &
  server=$!
  for side in outside inside; do
    p=$work/$side/project && mkdir -p "$p" && cd "$p" && cp "$self" tasks.sh
    git init -q . && git config user.name Ann && git config user.email ann@example.com
    printf 'A=1\n' > .env && until [ -s "$work/port" ]; do sleep 0.1; done && cp "$work/port" port && git add tasks.sh && git commit -qm one
    if [ $side = outside ]; then bash tasks.sh run > "$work/outside.txt" 2>/dev/null
    else "$waldo" launch --command bash -- tasks.sh run > "$work/inside.txt" 2> "$work/facts.txt"; fi
    [ -e .vscode ] || sed -i 's/^set up an editor (.vscode)|yes|.*/set up an editor (.vscode)|no|it is taken out at the end, and named/' "$work/$side.txt"
  done
  kill $server
  echo '| task | outside | inside | why not |'
  echo '|---|---|---|---|'
  paste -d '|' "$work/outside.txt" "$work/inside.txt" | awk -F'|' '
    { o += $2 == "yes"; i += $5 == "yes"; n++; print "| " $1 " | " $2 " | " $5 " | " ($5 == "yes" ? "" : $2 == "yes" ? $6 : "fails outside too") " |" }
    END { printf "\n%d tasks: %d work outside, %d inside\n", n, o, i }'
  [ -z "${FACTS:-}" ] || cat "$work/facts.txt"
  exit
fi

t() { # NAME COMMAND [WHY it does not work inside]
  if timeout 60 bash -c "set -e; $2" > /tmp/task.out 2>&1 < /dev/null; then echo "$1|yes|${3:-}"
  else echo "$1|no|${3:-$(tail -1 /tmp/task.out | tr '|' ' ' | cut -c1-90)}"; fi
}
mkdir -p src
t 'edit a file in place' 'echo a > src/a; sed -i s/a/b/ src/a; grep -q b src/a'
t 'search the project' 'grep -rn Ann . > /dev/null; find . -name "*.sh" | grep -q tasks'
t 'rename, link, make a pipe' 'mv src/a src/b; ln -s b src/l; ln src/b src/h; mkfifo src/f; chmod 755 src/b; rm src/f'
t 'build Go' 'mkdir -p g; cd g; printf "module m\n" > go.mod; printf "package main\nfunc main(){println(1)}\n" > m.go; go build -o m . && ./m'
t 'test Go' 'cd g; printf "package main\nimport \"testing\"\nfunc TestA(t *testing.T){}\n" > m_test.go; go test ./... && go vet ./...'
t 'build C with make' 'mkdir -p c; cd c; printf "int main(){return 0;}\n" > a.c; printf "a: a.c\n\tgcc -g -o a a.c\n" > Makefile; make && ./a'
t 'build Rust' 'mkdir -p r/src; cd r; printf "[package]\nname=\"r\"\nversion=\"0.1.0\"\nedition=\"2021\"\n" > Cargo.toml; echo "fn main(){}" > src/main.rs; cargo build --offline'
t 'compile and run Java' 'mkdir -p j; cd j; echo "class A{public static void main(String[] a){}}" > A.java; javac A.java && java A'
t 'test Python' 'mkdir -p p; cd p; printf "import unittest\nclass T(unittest.TestCase):\n def test(s): pass\n" > test_a.py; python3 -m unittest'
t 'make a virtual environment' 'python3 -m venv --without-pip v && v/bin/python -c 1'
t 'test Node' 'mkdir -p n; cd n; echo "require(\"node:test\")(\"a\", () => {})" > a.test.js; node --test'
t 'run a script of package.json' 'cd n; echo "{\"name\":\"n\",\"version\":\"1.0.0\",\"scripts\":{\"x\":\"node -e 1\"}}" > package.json; npm run x'
t 'install a local package, with its bin link' 'mkdir -p k; cd k; printf "#!/usr/bin/env node\n" > x.js; echo "{\"name\":\"k\",\"version\":\"1.0.0\",\"bin\":{\"kx\":\"x.js\"}}" > package.json; cd ../n; npm install --offline ../k && npx --offline kx'
t 'Node: processors, threads' 'node -e "const o=require(\"os\"); if(o.cpus().length<1||o.totalmem()<1e9) process.exit(1); new (require(\"worker_threads\").Worker)(\"1\",{eval:true})"'
t 'nproc, free, ps, top' 'nproc; free; ps aux; top -bn1'
t 'background process, signals' 'sleep 9 & kill $!; wait $! || [ $? = 143 ]'
t '200 threads, 1,000 open files' 'python3 -c "import threading,time;[threading.Thread(target=time.sleep,args=(1,)).start() for _ in range(200)];l=[open(\"tasks.sh\") for _ in range(1000)]"'
t 'SQLite with a write-ahead log' 'python3 -c "import sqlite3;c=sqlite3.connect(\"d.db\");c.execute(\"pragma journal_mode=wal\");c.execute(\"create table t(a)\");c.commit()"'
t 'watch files (inotify)' 'timeout 10 node -e "const f=require(\"fs\");f.watch(\"src\",()=>process.exit(0));setTimeout(()=>f.writeFileSync(\"src/w\",\"x\"),200);setTimeout(()=>process.exit(1),5000)"'
t 'dev server, asked by a client' 'python3 -m http.server 8123 --bind 127.0.0.1 & sleep 1; curl -sf http://127.0.0.1:8123/ > /dev/null; kill $!'
t 'server on a Unix socket' 'python3 -c "import socket;s=socket.socket(1);s.bind(\"s.sock\");s.listen();socket.socket(1).connect(\"s.sock\")"; rm s.sock'
t 'debug with gdb' 'gdb -batch -ex run c/a 2>&1 | grep -q "exited normally"'
t 'trace with strace' 'strace -o /dev/null true'
t 'debug Python with pdb' 'echo "x=1" > p/x.py; echo c | python3 -m pdb p/x.py'
t 'terminal of its own (script, pty)' 'script -qec "tty" /dev/null | grep -q pts'
t 'tmux session' 'tmux -S /tmp/t.sock new-session -d sleep 5 && tmux -S /tmp/t.sock ls && tmux -S /tmp/t.sock kill-server'
t 'git: commit, log, diff' 'echo x >> src/b; git add src/b; git commit -qm two; git log --oneline | grep -q two; git diff HEAD~1 | grep -q x'
t 'git: branch, rebase, stash' 'git checkout -qb f; git commit -q --allow-empty -m f; git rebase -q master; echo y > src/b; git stash -q; git stash pop -q; git checkout -q -- src/b; git checkout -q master'
t 'git: interactive rebase by an editor' 'for i in 1 2; do echo $i > src/s$i; git add src/s$i; git commit -qm s$i; done; GIT_SEQUENCE_EDITOR="sed -i s/^pick/reword/" GIT_EDITOR=true git rebase -q -i HEAD~2'
t 'git: bisect, gc' 'git bisect start HEAD HEAD~2; git bisect run true; git bisect reset; git gc -q'
t 'git: working tree in the project' 'git worktree add -q wt f; git -C wt status; git worktree remove --force wt'
t 'git: a repository of its own' 'git init -q sub0; git -C sub0 commit -q --allow-empty -m s'
t 'git: remote add, set-upstream' 'git init -q --bare bare.git; git remote add local "$PWD/bare.git"; git push -q -u local master; git branch -u local/master; git remote add up https://git.example.com/x.git'
t 'git: add a submodule' 'git -c protocol.file.allow=always submodule --quiet add "$PWD/sub0" sub'
t 'git: clone' 'git clone -q sub0 clone'
t 'git: sign with an SSH key of its own' 'rm -f /tmp/k /tmp/k.pub; ssh-keygen -q -t ed25519 -N "" -f /tmp/k; git -c gpg.format=ssh -c user.signingkey=/tmp/k.pub commit -q -S --allow-empty -m signed; git cat-file commit HEAD | grep -q gpgsig'
t 'git: a hook' 'printf "#!/bin/sh\n" > .git/hooks/pre-commit' 'hooks run outside later: read-only'
t 'set up an editor (.vscode)' 'mkdir -p .vscode; echo "{}" > .vscode/settings.json'
t 'read .env' 'grep -q A=1 .env' 'it can hold keys: empty inside; unprotect: [.env] shows it'
t 'write 200 MB to /tmp' 'dd if=/dev/zero of=/tmp/big bs=1M count=200 status=none; rm /tmp/big'
t 'time zone, locale' '[ "$(TZ=Europe/Berlin date -d @1750000000 +%H)" = 17 ]; python3 -c "print(\"\u00e9\")"'
t 'headless browser' 'b=$(command -v chromium chromium-browser google-chrome | head -1); "$b" --headless --no-sandbox --disable-gpu --dump-dom about:blank' 'no network and no own sandbox: --no-sandbox'
t 'a port of this machine' 'timeout 3 bash -c "echo > /dev/tcp/127.0.0.1/$(cat port 2>/dev/null || echo 1)"' 'by contract: network: {allow: [localhost:PORT]}'
t 'Docker' 'docker ps' 'its socket is the whole machine'
t 'a sandbox within (unshare, bwrap)' 'unshare -Ur true' 'namespaces cannot nest'
t 'io_uring' 'python3 -c "import ctypes;assert ctypes.CDLL(None).syscall(425,8,ctypes.create_string_buffer(200))>=0"' 'refused; libuv and Go do without'
t 'set-id files' 'chmod u+s src/b' 'they would run as you outside'
