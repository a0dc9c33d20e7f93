package protect

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func tree(t *testing.T, files map[string]string) *os.Root {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func paths(found []Found) (out []string) {
	for _, f := range found {
		name := f.Path
		if f.Hidden {
			name = "(" + name + ")"
		}
		out = append(out, name)
	}
	return out
}

// TestLook: the table's names are found at any depth, in each repository, in other case, and in a folder that git takes
// for a repository by what it holds. Its neighbours are not.
func TestLook(t *testing.T) {
	root := tree(t, map[string]string{
		"main.go": "", "config": "", "hooks/useState.ts": "", "Makefile": "",
		".git/HEAD": "", ".git/config": "", ".git/hooks/a.sample": "", ".git/refs/heads/.envrc": "",
		".git/objects/info/alternates": "", ".git/objects/ab/config": "", ".git/info/attributes": "",
		".git/modules/lib/HEAD": "", ".git/modules/lib/config": "", ".git/modules/lib/objects/x": "",
		".git/modules/lib/refs/x": "", ".git/worktrees/w/HEAD": "", ".git/worktrees/w/commondir": "",
		".git/worktrees/w/config.worktree": "", ".git/worktrees/w/index": "",
		"sub/.GIT/config": "", "bare/HEAD": "", "bare/objects/x": "", "bare/refs/x": "", "bare/hooks/post-update": "",
		"wt/.git": "gitdir: /x", ".Claude/settings.json": "", "a/.ENVRC": "export A=1", ".npmrc": "//r/:_authToken=x",
		"b/.npmrc": "fund=false", "tls/a.pem": "-----BEGIN CERTIFICATE-----", "tls/b.pem": "-----BEGIN RSA PRIVATE KEY-----",
		".env": "A=1", ".env.example": "A=", "node_modules/m/.vscode/x": "", "AGENTS.md": "",
	})
	r, err := New([]string{"deploy/*.sh"}, []string{"mise.toml"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root.Name(), "deploy"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"deploy/go.sh", "mise.toml"} {
		if err := os.WriteFile(filepath.Join(root.Name(), name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := r.Look(root)
	want := []string{".Claude", "(.env)", ".git/config", ".git/hooks", ".git/info/attributes",
		".git/modules/lib/config",
		".git/objects/info/alternates", ".git/worktrees/w/commondir", ".git/worktrees/w/config.worktree", "(.npmrc)",
		"a/.ENVRC", "b/.npmrc", "bare/hooks", "deploy/go.sh", "sub/.GIT/config", "(tls/b.pem)", "wt/.git"}
	if err != nil || !slices.Equal(paths(got), want) {
		t.Errorf("%v\n got %q\nwant %q", err, paths(got), want)
	}
	for _, bad := range [][]string{{"nothing-of-the-table"}, {""}} {
		if _, err := New(nil, bad); err == nil {
			t.Errorf("unprotect %q passes", bad)
		}
	}
	if _, err := New([]string{"../x"}, nil); err == nil {
		t.Error("protect ../x passes")
	}
}

// TestComposed: a letter with its mark is one name, composed or not.
func TestComposed(t *testing.T) {
	for _, pattern := range []string{"schl\u00fcssel.txt", "schlu\u0308ssel.txt"} {
		r, err := New([]string{pattern}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{"a/schl\u00fcssel.txt": true, "SCHLU\u0308SSEL.TXT": true, "schlussel.txt": false} {
			if _, got := r.Name(name); got != want {
				t.Errorf("%+q, %+q: %t", pattern, name, got)
			}
		}
	}
}

// TestBelow: a name counts also where the folder's own path is its beginning, and a folder of a repository is one.
func TestBelow(t *testing.T) {
	root := tree(t, map[string]string{
		"tools/bazel": "", "tools/other": "", ".cargo/config.toml": "", "r/.git/HEAD": "", "r/.git/config": "",
		"r/.git/info/attributes": "", "r/.git/modules/lib/x": "", "bare/HEAD": "", "bare/objects/x": "", "bare/refs/x": "",
		"bare/info/attributes": "", "plain/info/attributes": "", "node_modules/m/AGENTS.md": "", "node_modules/m/.npmrc": "a=b",
	})
	all, err := New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string][]string{
		"tools": {"bazel"}, ".cargo": {"config.toml"}, "r/.git": {"config",
			"info/attributes"}, "r/.git/info": {"attributes"},
		"bare/info": {"attributes"}, "plain/info": nil, "node_modules/m": {".npmrc"},
	} {
		at := filepath.Join(root.Name(), dir)
		below, err := os.OpenRoot(at)
		if err != nil {
			t.Fatal(err)
		}
		got, err := all.At(at).Look(below)
		if err != nil || !slices.Equal(paths(got), want) {
			t.Errorf("%s: %v\n got %q\nwant %q", dir, err, paths(got), want)
		}
		if dir != "r/.git" {
			continue
		}
		if err := os.MkdirAll(filepath.Join(at, "hooks"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "hooks/pre-commit"), nil, 0o700); err != nil {
			t.Fatal(err)
		}
		if new, err := all.At(at).Appeared(below, got); err != nil || !slices.Equal(paths(new), []string{"hooks"}) {
			t.Errorf("appeared: %q %v", paths(new), err)
		}
	}
}

// TestFoundInJSON: names that are not UTF-8 are the same after they were stored, and no two are one.
func TestFoundInJSON(t *testing.T) {
	all := []Found{{Path: "caf\xe9/.vscode", Link: "\xff"}, {Path: "caf\xfa/.vscode"}, {Path: "caf\ufffd/.vscode"}}
	b, err := json.Marshal(all)
	var got []Found
	if err == nil {
		err = json.Unmarshal(b, &got)
	}
	if err != nil || !reflect.DeepEqual(got, all) {
		t.Errorf("%v: %+v", err, got)
	}
}

// TestAppeared: what a run plants is named; what git itself writes for a clone, a worktree or a submodule is not.
func TestAppeared(t *testing.T) {
	root := tree(t, map[string]string{".git/HEAD": "", ".git/config": "[core]\n"})
	r, err := New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	before, err := r.Look(root)
	if err != nil {
		t.Fatal(err)
	}
	put := func(name, text string) {
		at := filepath.Join(root.Name(), name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	clone := "[core]\n\trepositoryformatversion = 0\n\tbare = false\n[remote \"origin\"]\n\turl = https://example.com/r.git\n" +
		"\tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n"
	for name, text := range map[string]string{ // harmless
		"ok/.git/config": clone, "ok/.git/hooks/pre-commit.sample": "x", "ok/.git/HEAD": "", ".git/worktrees/ok/HEAD": "",
		".git/worktrees/ok/commondir": "../..\n", ".git/worktrees/ok/gitdir": root.Name() + "/w/.git\n",
		".gitmodules": "[submodule \"s\"]\n\tpath = s\n\turl = ../s.git\n", "s/.git": "gitdir: ../.git/modules/s\n",
		".git/modules/s/config": clone + "[core]\n\tworktree = ../../../s\n", ".git/modules/s/HEAD": "",
		".git/modules/s/objects/x": "", ".git/modules/s/refs/x": "",
		"w/.git": "gitdir: " + root.Name() + "/.git/worktrees/ok\n", ".env": "A=1", "CLAUDE.md": "",
	} {
		put(name, text)
	}
	for name, text := range map[string]string{
		"n1/.git/config": clone + "[core]\n\tfsmonitor = ./x\n", "n2/.git/config": "[include]\n\tpath = /tmp/x\n",
		"n7/.git/config": "[core]\n\tworktree = /etc\n", "n8/.git/config": "[core]\n\tworktree = ../../..\n",
		"n9/.git/config": "[remote \"o\"]\n\turl = ext:\":\"sh -c id\n", "na/.git/config": "[core]\n\tworktree = ../lnk/../s\n",
		"nb/.git/config": "[branch \"o\"]\n\tremote = ext::sh -c id\n", "nc/.gitmodules": "[submodule \"s\"]\n\tupdate = !id\n",
		"nd/.gitmodules": "[submodule \"s\"]\n\tpath = -s\n",
		"n3/.git/config": "[remote \"o\"]\n\turl = ext::sh -c id\n", "n4/.git/config": "[alias] x = !id\n",
		"n5/.git/config": "[user]\n\tname = a\\\n[core] sshCommand = id\n", "n6/.git/hooks/post-commit": "x",
		".git/hooks/pre-commit": "x", ".git/config.worktree": "[core]\n\tpager = id\n", ".git/commondir": "/tmp\n",
		"node_modules/e/.git/config": "[core]\n\tfsmonitor = ./x\n", "node_modules/e/.vscode/tasks.json": "{}", // of a package
		"repo/HEAD": "", "repo/refs/x": "", "repo/objects/aa/e/.git/config": "[core]\n\tfsmonitor = ./x\n",
		"x5/.git": "gitdir: ../.git/objects/aa/e\n", ".git/objects/aa/e/config": "", ".git/remotes/origin": "URL: x",
		".git/worktrees/ok/config.worktree": "[core]\n\tpager = id\n", // HEAD of the working tree stays
		"ok/.git/branches/.sample":          "", "x1/.git": "gitdir: /tmp/evil\n", "x2/.git": "gitdir: ../../evil\n", "x3/.git": "gitdir: ../node_modules/g\n",
		"node_modules/g/config": "", ".vscode/tasks.json": "{}", "deep/er/.EnvRc": "x", ".claude/settings.json": "{}",
		".git/info/attributes": "* filter=x", "bare/HEAD": "", "bare/objects/x": "", "bare/refs/x": "", "bare/config": "[a]\nb=c\n", "bare/hooks/update": "x",
	} {
		put(name, text)
	}
	if err := os.Symlink("/etc", filepath.Join(root.Name(), "lnk")); err != nil {
		t.Fatal(err)
	}
	put("x4/.git", "gitdir: ../lnk\n")
	got, err := r.Appeared(root, before)
	want := []string{".claude", ".git/commondir", ".git/config.worktree", ".git/hooks", ".git/info/attributes",
		".git/remotes",
		".git/worktrees/ok/config.worktree", ".vscode", "bare/HEAD", "deep/er/.EnvRc", "n1/.git/config", "n2/.git/config", "n3/.git/config", "n4/.git/config",
		"n5/.git/config", "n6/.git/hooks", "n7/.git/config", "n8/.git/config", "n9/.git/config", "na/.git/config",
		"nb/.git/config", "nc/.gitmodules", "nd/.gitmodules", "node_modules/e/.git/config", "repo/objects/aa/e/.git/config", "x1/.git", "x2/.git",
		"x3/.git", "x4/.git", "x5/.git"}
	if err != nil || !slices.Equal(paths(got), want) {
		t.Errorf("%v\n got %q\nwant %q", err, paths(got), want)
	}
}

// TestLinks: git writes through a link in a repository, as the line of a branch's name into logs/HEAD. One that appears is
// taken out, wherever it leads: to a hook, out of the folder, nowhere. One that was there stays while it leads to the same
// place, and so does a HEAD that is a link to a branch.
func TestLinks(t *testing.T) {
	root := tree(t, map[string]string{".git/HEAD": "", ".git/info/x": "", ".git/refs/heads/mise.toml": "", "src/a": "",
		"bare/HEAD": "", "bare/objects/x": "", "bare/refs/x": "", ".git/worktrees/w/HEAD": "", ".git/worktrees/w/commondir": "../..\n",
		".git/logs/refs/heads/x": ""})
	link := func(to, name string) {
		if err := os.Symlink(to, filepath.Join(root.Name(), name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{".git/info/exclude": "/etc/hosts", ".git/description": "/etc/hosts",
		".git/own": "../src/a"} {
		link(to, name)
	}
	r, err := New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	before, err := r.Look(root)
	if want := []string{".git/description", ".git/info/exclude", ".git/own",
		".git/worktrees/w/commondir"}; err != nil ||
		!slices.Equal(paths(before), want) {
		t.Fatalf("%v %q", err, paths(before))
	}
	if err := os.Remove(filepath.Join(root.Name(), ".git/HEAD")); err != nil {
		t.Fatal(err)
	}
	link("refs/heads/mise.toml", ".git/HEAD") // the control
	link("/etc/hosts", "src/out")             // in no repository
	link("../hooks/pre-commit", "bare/HEAD.lock")
	for name, to := range map[string]string{".git/logs/HEAD": "../../../.bashrc",
		".git/COMMIT_EDITMSG": "hooks/pre-commit",
		".git/logs/in":        "../refs/heads/mise.toml", ".git/worktrees/w/HEAD.x": "../../hooks/pre-commit", ".git/refs/remotes": "/etc", ".git/logs/refs/heads/y": "/etc/hosts",
		".git/MERGE_MSG": "../src/../../x", ".git/FETCH_HEAD": "../nowhere/../../x", ".git/objects": "/var", "bare/ORIG_HEAD": "/etc/hosts",
		".git/worktrees/w/logs": "/etc"} {
		link(to, name)
	}
	if err := os.Remove(filepath.Join(root.Name(), ".git/description")); err != nil {
		t.Fatal(err)
	}
	link("/etc/passwd", ".git/description")
	got, err := r.Appeared(root, before)
	want := []string{".git/COMMIT_EDITMSG", ".git/FETCH_HEAD", ".git/MERGE_MSG", ".git/description",
		".git/logs/HEAD", ".git/logs/in",
		".git/logs/refs/heads/y", ".git/objects",
		".git/refs/remotes", ".git/worktrees/w/HEAD.x", ".git/worktrees/w/logs", "bare/HEAD.lock", "bare/ORIG_HEAD"}
	if err != nil || !slices.Equal(paths(got), want) {
		t.Errorf("%v\n got %q\nwant %q", err, paths(got), want)
	}
}

// TestDeep: a tree that would take minutes to be looked through is taken out where it is too deep, and what else appeared
// is still found. The control is not as deep.
func TestDeep(t *testing.T) {
	root := tree(t, map[string]string{"a": ""})
	r, err := New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	before, err := r.Look(root)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for name, depth := range map[string]int{"control/": 250, "deep/": 400} {
		dir := name + strings.Repeat("d/", depth)
		if err := root.MkdirAll(dir+".vscode", 0o755); err != nil {
			t.Fatal(err)
		}
		want = append(want, (dir + ".vscode")[:min(len(dir)+7, 5+2*maxDepth-1)])
	}
	slices.Sort(want)
	got, err := r.Appeared(root, before)
	if err != nil || !slices.Equal(paths(got), want) || got[0].Deep() || !got[1].Deep() {
		t.Fatalf("%v %d\n got %q\nwant %q", err, len(got), paths(got), want)
	}
	if err := Remove(root, got[1].Path); err != nil {
		t.Error(err)
	}
}

// TestProgramNames: names by which other programs find a program to run are taken for planted, in other case, too.
// .goosehints, which a model reads, is marked. Their neighbours are neither.
func TestProgramNames(t *testing.T) {
	root := tree(t, map[string]string{"main.go": ""})
	r, err := New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	before, err := r.Look(root)
	if err != nil || len(before) > 0 {
		t.Fatal(paths(before), err)
	}
	want := []string{".bundle/config", ".bundle/plugin", ".clinerules", ".hg/sharedpath", ".jvmopts", ".perldb",
		".pylintrc",
		".pylintrc.toml", ".sbtopts", "a/Global.JSON", "a/tools/bazel", "a/tools/bazel.linux-arm64", "pylintrc", "pylintrc.toml",
		"rust-toolchain"}
	for _, name := range slices.Concat(want, []string{".bundle/ruby", ".hg/requires", ".perltidyrc", "bazel",
		"a/tools/bazelisk",
		"a/globals.json", "pylintrc.py", ".goosehints"}) {
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := root.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := r.Appeared(root, before)
	if err != nil || !slices.Equal(paths(got), want) {
		t.Errorf("%v\n got %q\nwant %q", err, paths(got), want)
	}
	if row, ok := r.Name("a/.goosehints"); !ok || row.Kind != Show {
		t.Errorf(".goosehints: %v %v", row, ok)
	}
}

// TestPage: the page for people has every row of the table.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/inside.md")
	if err != nil {
		t.Fatal(err)
	}
	names := [...]string{"seal", "hide", "key", "show"}
	for _, r := range Table() {
		line := "| `" + r.Pattern + "` | " + names[r.Kind] + " | " + r.Reason + " |\n"
		if !strings.Contains(string(page), line) {
			t.Errorf("docs/inside.md lacks %s", line)
		}
	}
}

// BenchmarkLook looks through 10,000 names in 100 folders.
func BenchmarkLook(b *testing.B) {
	dir := b.TempDir()
	for i := range 100 {
		d := filepath.Join(dir, "d"+strconv.Itoa(i))
		if err := os.Mkdir(d, 0o755); err != nil {
			b.Fatal(err)
		}
		for j := range 100 {
			if err := os.WriteFile(filepath.Join(d, "f"+strconv.Itoa(j)), nil, 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer root.Close()
	r, err := New(nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := r.Look(root); err != nil {
			b.Fatal(err)
		}
	}
}
