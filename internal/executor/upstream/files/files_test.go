package files

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/config"
	"waldo/internal/model/contract"
)

// place makes files and returns their folder, without links in its path.
func place(t *testing.T, names ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		at := filepath.Join(dir, n)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func server(t *testing.T, dir, lines string) contract.Server {
	t.Helper()
	cfg, problems := config.Parse(filepath.Join(dir, "waldo.yaml"),
		[]byte("servers:\n  s: {"+strings.ReplaceAll(lines, "DIR", dir)+"}\n"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return cfg.Servers["s"]
}

// The program of a command and its interpreter's script are mounted, each as one file, and nothing else.
func TestShown(t *testing.T) {
	dir := place(t, "srv/server.py", "srv/lib.py", "prog", "home/.ssh/id", "data/a", "node_modules/x/index.js")
	here := Machine{Homes: []string{dir + "/home"}, State: dir + "/state"}
	for _, row := range []struct{ lines, argv, shown, fault string }{
		{"command: [python3, DIR/srv/server.py]", "python3 DIR/srv/server.py", "DIR/srv/server.py", ""},
		{"command: [python3, ./srv/server.py, --x]", "python3 DIR/srv/server.py --x", "DIR/srv/server.py", ""},
		{"command: [python3, srv/server.py]", "python3 DIR/srv/server.py", "DIR/srv/server.py", ""},
		{"command: [python3, -u, -X, dev, ./srv/server.py]", "python3 -u -X dev DIR/srv/server.py",
			"DIR/srv/server.py", ""},
		{"command: [node, --require, x, DIR/node_modules/x/index.js]", "node --require x DIR/node_modules/x/index.js",
			"DIR/node_modules/x/index.js", ""},
		{"command: [./prog, ./data/a]", "DIR/prog ./data/a", "DIR/prog", ""},
		{"command: [python3, -m, server]", "python3 -m server", "", ""},
		{"command: [env, /usr/share]", "env /usr/share", "", ""},
		{"command: [env, DIR/data], mounts: {DIR/data: ./data}", "env DIR/data", "DIR/data", ""},
		{"command: [env, /project/a], mounts: {/project: {from: ./data}}", "env /project/a", "DIR/data>/project", ""},
		{"command: [python3, /srv/server.py], mounts: {/srv: ./srv}", "python3 /srv/server.py", "DIR/srv>/srv", ""},
		{"command: [/srv/server.py], mounts: {/srv: ./srv}", "/srv/server.py", "DIR/srv>/srv", ""},
		{"command: [env, DIR/data]", "env DIR/data", "", "write mounts: {DIR/data: DIR/data}"},
		{"command: [env, --root=DIR/data]", "env --root=DIR/data", "", "write mounts: {DIR/data: DIR/data}"},
		{"command: [python3, DIR/srv/server.py, DIR/srv/lib.py]", "python3 DIR/srv/server.py DIR/srv/lib.py",
			"DIR/srv/server.py", "DIR/srv/lib.py names a file"},
		{"command: [env, DIR/home]", "env DIR/home", "", "it cannot be shown, since it holds a whole home folder"},
		{"command: [python3, DIR/home/.ssh/id]", "python3 DIR/home/.ssh/id", "", "begins with a dot"},
		{"command: [python3, DIR/srv]", "python3 DIR/srv", "", "is not a file: show a folder by mounts"},
		{"command: [DIR/none]", "DIR/none", "", "does not exist"},
		{"command: [helper], mounts: {/a: ./none}", "helper", "", "no such file"},
	} {
		argv, shown, faults := here.Shown(server(t, dir, row.lines), false)
		var got []string
		for _, m := range shown {
			s := m.Source
			if m.Source != m.Target {
				s += ">" + m.Target
			}
			got = append(got, s)
		}
		want := strings.ReplaceAll(row.shown, "DIR", dir)
		if strings.Join(got, " ") != want || strings.Join(argv, " ") != strings.ReplaceAll(row.argv, "DIR", dir) {
			t.Errorf("%s: runs %q and is shown %q, want %q", row.lines, argv, got, want)
		}
		said := ""
		for _, f := range faults {
			said += f.Error()
		}
		if fault := strings.ReplaceAll(row.fault, "DIR", dir); (said == "") != (fault == "") ||
			!strings.Contains(said, fault) {
			t.Errorf("%s: %q, want %q", row.lines, said, fault)
		}
	}
}

// Sensitive files of this machine are never mounted, under any name; their neighbours are.
func TestTooMuch(t *testing.T) {
	dir := place(t, "home/project/a", "home/.ssh/id", "home/.nvm/versions/node", "home/.nvm/alias", "state/waldo.db",
		"beside/a", "holder/home/a")
	for link, to := range map[string]string{"root": "/", "keys": "home/.ssh", "proc": "/proc/self"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "beside/socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here := Machine{Homes: []string{dir + "/home", dir + "/holder/home"}, State: dir + "/state"}
	for _, row := range []struct {
		from string
		ok   bool
	}{
		{"home/project", true}, {"beside", true}, {"home/.nvm/versions", true}, {"home/project/a", true}, {"/", false},
		{"home", false}, {"holder", false}, {".", false}, {"home/.ssh", false}, {"home/.ssh/id", false},
		{"home/.nvm/alias", false}, {"beside/socket", false}, {"state", false}, {"state/waldo.db", false}, {"/proc", false}, {"/proc/self", false},
		{"/run", false}, {"/var/run", false}, {"/etc", false}, {"/etc/passwd", false}, {"/sys", false}, {"/dev", false},
		{"/home", false}, {"/tmp", false}, {"/var", false}, {"root", false}, {"keys", false}, {"proc", false},
		{"home/project/..", false},
	} {
		for _, key := range []string{"input", "/shown"} {
			if _, err := os.Stat(row.from); filepath.IsAbs(row.from) && err != nil {
				continue
			}
			_, shown, faults := here.Shown(server(t, dir, "command: [helper], mounts: {"+key+": "+row.from+"}"), false)
			refused := slices.ContainsFunc(faults, func(f Fault) bool { return f.Refused })
			if len(shown) == 1 != row.ok || refused == row.ok {
				t.Errorf("mounts: {%s: %s}: shown %v, faults %v", key, row.from, shown, faults)
			}
		}
	}
}

// A server outside runs from the configuration's folder, and nothing is mounted.
func TestOutside(t *testing.T) {
	dir := place(t, "srv/server.py", "prog")
	for _, row := range [][3]string{
		{"command: [python3, ./srv/server.py, DIR], placement: outside", "python3 DIR/srv/server.py DIR", ""},
		{"command: [./prog], placement: outside", "DIR/prog", ""},
		{"command: [./none], placement: outside", "DIR/none", "no such program"},
	} {
		argv, shown, faults := Machine{}.Shown(server(t, dir, row[0]), false)
		if strings.Join(argv, " ") != strings.ReplaceAll(row[1], "DIR", dir) || len(shown) > 0 ||
			(len(faults) > 0) != (row[2] != "") {
			t.Errorf("%s: %q %v %v", row[0], argv, shown, faults)
		}
	}
}

// The programs that trust covers are files, also those of a mount and of an interpreter.
func TestPrograms(t *testing.T) {
	dir := place(t, "srv/server.py", "prog")
	for _, row := range [][2]string{
		{"command: [python3, ./srv/server.py]", "DIR/srv/server.py"},
		{"command: [./prog, ./srv/server.py], placement: outside", "DIR/prog DIR/srv/server.py"},
		{"command: [python3, /workspace/input/server.py], mounts: {input: ./srv}", "DIR/srv/server.py"},
		{"command: [python3, -m, server]", ""},
	} {
		if got := strings.Join(Machine{}.Programs(server(t, dir, row[0])), " "); got != strings.ReplaceAll(row[1],
			"DIR", dir) {
			t.Errorf("%s: %q", row[0], got)
		}
	}
}
