package category

import (
	"slices"
	"strings"
	"testing"
)

// TestShell: the most serious program of a line counts, wherever the shell would run it.
func TestShell(t *testing.T) {
	for line, want := range map[string]string{
		"ls -la | grep x":                       "read",
		"env":                                   "read",
		"LANG=C sort a.txt":                     "read",
		"sort a.txt > b.txt":                    "write",
		"sort a.txt 2>&1 >/dev/null":            "read",
		"make 2> errors.log":                    "code",
		"cat <<EOF > a.txt\ngit push\nEOF\nls":  "write",
		"cat <<'EOF'\nnpm publish\nEOF":         "read",
		"python3 -c 'import os'":                "code",
		"cat a; mystery":                        "other",
		"# curl\nls":                            "read",
		"echo 'curl http://x'":                  "read",
		`echo "$(curl http://x)"`:               "network",
		"echo `wget x`":                         "network",
		"echo $((1 + (2*3)))":                   "read",
		"cd a && git -C b push origin main":     "publish",
		"git log --grep push":                   "read",
		"git clone https://x":                   "network",
		"npm ci && npm test":                    "install",
		"npm publish":                           "publish",
		"kubectl get pods":                      "read",
		"kubectl delete pod x":                  "publish",
		"terraform apply":                       "publish",
		"timeout 5s curl x":                     "network",
		"find . -name x | xargs -n 1 rm":        "write",
		"find . -delete":                        "write",
		"sed -i s/a/b/ f":                       "write",
		"bash -lc 'git push'":                   "publish",
		"bash build.sh":                         "code",
		"eval 'chmod +x a'":                     "access",
		"sudo ls":                               "access",
		"/usr/bin/chmod 700 a":                  "access",
		"if true; then\n  docker push x\nfi":    "publish",
		"for f in *; do cat \"$f\"; done":       "read",
		"(cd a; { curl x; })":                   "network",
		"diff <(sort a) <(wget b)":              "network",
		"":                                      "",
		"X=1":                                   "",
		strings.Repeat("$(", 100) + "ls":        "other",
		strings.Repeat("ls;", maxText/3) + "ls": "other",
	} {
		if got := Of("run_shell", map[string]any{"command": line}); got != want {
			t.Errorf("%.60q: %q, want %q", line, got, want)
		}
	}
}

// TestOf: a call without a command has no category.
func TestOf(t *testing.T) {
	argv := func(words ...any) map[string]any { return map[string]any{"argv": words} }
	for _, c := range []struct {
		capability, want string
		args             map[string]any
	}{
		{"exec", "publish", argv("git", "push")},
		{"exec", "network", argv("sh", "-c", "ls; curl x")},
		{"exec", "read", argv("echo", "; curl x")}, // no shell
		{"exec", "other", argv("./tool")},
		{"exec", "", argv()},
		{"exec", "other", argv(1.0)},
		{"run_python", "code", map[string]any{"code": "1"}},
		{"helpdesk.use_voucher", "", map[string]any{"code": "1"}},
		{"files.read", "", map[string]any{"path": "a"}},
		{"run_shell", "", map[string]any{"command": 1.0}},
	} {
		if got := Of(c.capability, c.args); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.capability, c.args, got, c.want)
		}
	}
}

// TestTable: each line has a known category, and no program stands twice.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if words[0] != "prefix" && !slices.Contains(Names, words[0]) {
			t.Errorf("unknown category %q", words[0])
		}
		for _, w := range words[1:] {
			if seen[w] {
				t.Errorf("%s stands twice", w)
			}
			seen[w] = true
		}
	}
}

// FuzzShell: what follows a command never makes its category less serious.
func FuzzShell(f *testing.F) {
	for _, s := range []string{"", "ls", "'", "\"$(", "<<E\nE\n", "`", "$((", "\\", ">", "#", ")"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Of("run_shell", map[string]any{"command": "git push\n" + s})
		if len(s) < maxText-10 && slices.Index(Names, got) < slices.Index(Names, "publish") {
			t.Errorf("%q: %q", s, got)
		}
	})
}
