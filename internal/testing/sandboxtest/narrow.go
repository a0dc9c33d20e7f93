//go:build linux

package sandboxtest

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/loader"
)

// tries are what a program does to get at others and at files: a name, and code whose error is printed.
var tries = []struct{ name, code, only string }{
	{"execute another program", `run("/usr/bin/id")`, "EACCES"},
	{"execute a shell", `run("/bin/sh", "-c", "true")`, "EACCES"},
	{"execute a file of a shown folder", `run(SHOWN + "/tool")`, "EACCES"},
	{"execute a file that it wrote", `copy(TEMP + "/tool"); run(TEMP + "/tool")`, "EACCES"},
	{"execute its own program", `run(sys.executable, "-c", "")`, "ok"},
	{"load another program", `run(LOADER, "/usr/bin/id")`, "127"},
	{"load a file that it wrote", `copy(TEMP + "/lib"); mmap.mmap(os.open(TEMP + "/lib", 0), 4096, 2, 5)`, "EPERM"},
	{"load a file of a shown folder", `mmap.mmap(os.open(SHOWN + "/tool", 0), 4096, 2, 5)`, "EPERM"},
	{"read another program", `open("/usr/bin/id", "rb")`, "EACCES"},
	{"read /etc/passwd", `open("/etc/passwd")`, "EACCES"},
	{"read /etc/passwd through a link", `open(SHOWN + "/link")`, "EACCES"},
	{"list /usr", `os.listdir("/usr")`, "EACCES"},
	{"read a shown file", `open(SHOWN + "/tool", "rb").read()`, "ok"},
	{"write a temporary file", `open(TEMP + "/x", "w").write("x")`, "ok"},
	{"write a file that it may only read", `open(os.environ["OUT"] + "/x", "w")`, "EACCES"},
	{"write to /dev/null", `open("/dev/null", "w").write("x")`, "ok"},
}

const narrowHead = `import os, sys, errno, mmap, subprocess
TEMP, SHOWN = os.environ.get("TMPDIR", "/tmp"), "/workspace/shown" if os.path.exists("/workspace/shown") else "shown"
LOADER = os.environ["LOADER"]
def copy(to):
    f = os.open(to, os.O_WRONLY | os.O_CREAT, 0o755)
    os.write(f, open(SHOWN + "/tool", "rb").read())
    os.close(f)
def run(*argv):
    c = subprocess.run(argv, capture_output=True).returncode
    if c: raise SystemExit(c)
def attempt(name, code):
    try: exec(code); out = "ok"
    except OSError as e: out = errno.errorcode.get(e.errno, e)
    except SystemExit as e: out = e.code
    print(name + "=" + str(out))
`

// testNarrow: a profile's Only is all that its commands execute, open and change. The control is the same without it.
func (s *suite) testNarrow(t *testing.T) {
	files, err := new(loader.Finder).Needs("/", []string{"/usr/bin"}, "python3")
	if err != nil || len(files.Execute) < 2 {
		t.Fatal(files, err)
	}
	shown := openDir(t)
	tool, err := os.ReadFile("/usr/bin/true")
	if err == nil {
		err = errors.Join(os.WriteFile(shown+"/tool", tool, 0o755), os.Symlink("/etc/passwd", shown+"/link"))
	}
	if err != nil {
		t.Fatal(err)
	}
	p := Profile()
	p.Mounts = []sandbox.Mount{{Source: shown, Target: "/workspace/shown"}}
	only := &sandbox.Only{Execute: files.Execute, Write: []string{"/tmp/"},
		Read: append(files.Read, "/workspace/", "/tmp/", "/usr/lib/python3/")}
	only.Read = append(only.Read, loader.Glob("/", "/usr/lib/python3.*/")...)
	code := narrowHead
	for _, try := range tries {
		code += "attempt(" + strconv.Quote(try.name) + ", " + strconv.Quote(try.code) + ")\n"
	}
	for _, narrow := range []bool{false, true} {
		if p.Only = nil; narrow {
			p.Only = only
		}
		b, err := s.driver.Start(context.Background(), p)
		if narrow && errors.Is(err, sandbox.ErrOnly) && s.driver.Name() == "gvisor" {
			return // it reports that it cannot
		}
		if err != nil {
			t.Fatal(err)
		}
		f := run(t, b, sandbox.Command{Argv: []string{"/usr/bin/python3", "-"}, Stdin: strings.NewReader(code),
			Env: append(env, "LOADER="+files.Execute[1])})
		for _, try := range tries {
			want := "ok"
			if narrow {
				want = try.only
			}
			if strings.HasPrefix(try.name, "load a file") && narrow {
				want = s.answer("loading of code from folders", want, "ok")
			}
			if !strings.Contains(f.Stdout, try.name+"="+want+"\n") {
				t.Errorf("narrow %v: %s: want %s of:\n%s%s", narrow, try.name, want, f.Stdout, f.Stderr)
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	s.answer("programs and files that a profile names", "", "")
}
