package launch

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

// TestGitKeys: keys of remotes, branches and submodules can be set to plain values, and nothing else can.
func TestGitKeys(t *testing.T) {
	after := map[string][]string{"remote.up.url": {"https://example.com/x.git"}}
	for _, row := range []struct{ key, value string }{
		{"remote.up.url", "https://example.com/x.git"}, {"remote.up.url", "git@example.com:a/b.git"},
		{"remote.up.url", "ssh://git@example.com:22/a"}, {"remote.up.fetch", "+refs/heads/*:refs/remotes/up/*"},
		{"branch.a/b.remote", "up"}, {"branch.x.remote", "."}, {"branch.x.merge", "refs/heads/x"}, {"user.name", "Ann Ö. Lee"},
		{"submodule.lib/x.url", "https://example.com/l"}, {"submodule.x.active", "true"}, {"pull.rebase", "true"},
		{"remote.up.tagopt", "--no-tags"}, {"branch.x.description", "what it is for"},
	} {
		if err := (gitChange{Key: row.key, Now: []string{row.value}}).check(after); err != nil {
			t.Errorf("%s = %s: %v", row.key, row.value, err)
		}
	}
	for _, row := range []struct{ key, value string }{
		{"core.hookspath", "x"}, {"core.fsmonitor", "true"}, {"alias.x", "!id"}, {"include.path", "x"}, {"remote.up.proxy", "x"},
		{"remote.up.uploadpack", "id"}, {"remote.up.vcs", "ext"}, {"url.x.insteadof", "y"}, {"submodule.x.update", "!id"},
		{"credential.helper", "x"}, {"filter.x.clean", "id"}, {"core", "x"}, {"remote.-x.url", "https://example.com/x"},
		{"remote.up.url", "ext::sh -c id"}, {"remote.up.url", "/home/ann/x"}, {"remote.up.url", "../x"}, {"remote.up.url", "x"},
		{"remote.up.url", "file:///tmp/x"}, {"remote.up.url", "-uid"}, {"remote.up.url", "ssh://-oProxyCommand=id/x"},
		{"remote.up.url", "git@-oProxyCommand=id:x"}, {"remote.up.url", "git@example.com:-x"}, {"remote.up.url", "https://a/b\nc"},
		{"remote.up.url", "https://a/b c"}, {"remote.up.fetch", "+refs/heads/*:refs/heads/*"}, {"branch.x.merge", "-x"},
		{"branch.x.remote", "ext::sh -c id"}, {"branch.x.remote", "./evil"}, {"branch.x.remote", "evil"},
		{"branch.x.rebase", "interactive"}, {"user.name", "a\nb"}, {"submodule.x.url", "./x"},
	} {
		if err := (gitChange{Key: row.key, Now: []string{row.value}}).check(after); err == nil {
			t.Errorf("%s = %q can be set", row.key, row.value)
		}
	}
}

// TestGitWrites: changes are written where the configuration is as it was, into the file itself; else nothing is.
func TestGitWrites(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	const before = "[core]\n\tbare = false # mine\n[remote \"origin\"]\n\turl = https://example.com/o\n"
	fetch := gitChange{Key: "remote.up.fetch", Now: []string{"+refs/heads/*:refs/remotes/up/*"}}
	url := gitChange{Key: "remote.up.url", Now: []string{"https://example.com/up"}}
	moved := gitChange{Key: "remote.origin.url", Was: []string{"https://example.com/o"},
		Now: []string{"https://example.com/p"}, Known: true}
	stale, unknown := moved, moved
	stale.Was, unknown.Known = []string{"https://example.com/q"}, false
	hooks := gitChange{Key: "core.hookspath", Now: []string{"x"}, Known: true}
	for _, row := range []struct {
		name    string
		changes []gitChange
		prepare func(dir string) error
		want    string // of the answer; empty: it is written
	}{
		{"new keys", []gitChange{fetch, url}, nil, ""},
		{"another value", []gitChange{moved}, nil, ""},
		{"a key that runs a program", []gitChange{url, hooks}, nil, "can name programs"},
		{"a value that changed meanwhile", []gitChange{url, stale}, nil, "changed outside"},
		{"a wrong word about what was there", []gitChange{unknown}, nil, "changed outside"},
		{"held by a git", []gitChange{url}, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "config.lock"), nil, 0o600)
		}, "another git writes"},
		{"a link", []gitChange{url}, func(dir string) error {
			at := filepath.Join(dir, "config")
			if err := os.Rename(at, at+"2"); err != nil {
				return err
			}
			return os.Symlink("config2", at)
		}, "no file of its own"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "config")
			if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
				t.Fatal(err)
			}
			if row.prepare != nil {
				if err := row.prepare(dir); err != nil {
					t.Fatal(err)
				}
			}
			was, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			status, text := writeAll(t, file, row.changes)
			now, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if row.want != "" {
				if status == facts.OK || !strings.Contains(text, row.want) || string(now) != before {
					t.Errorf("%s %s\n%s", status, text, now)
				}
				return
			}
			info, err := os.Stat(file)
			if status != facts.OK || err != nil || !os.SameFile(was, info) || !strings.HasPrefix(string(now), before[:30]) {
				t.Errorf("%s %s %v\n%s", status, text, err, now)
			}
			for _, g := range row.changes {
				if all, err := settings(now); err != nil || !slices.Equal(all[g.Key], g.Now) {
					t.Errorf("%s: %v %v", g.Key, all, err)
				}
			}
			if _, err := os.Lstat(file + ".lock"); err == nil {
				t.Error("the lock is left")
			}
		})
	}
}

func writeAll(t *testing.T, file string, changes []gitChange) (facts.Status, string) {
	t.Helper()
	out, err := runGit(context.Background(), policy.Decision{Call: gitCall(t, file, changes)})
	if err != nil || len(out.Content) != 1 {
		t.Fatal(out, err)
	}
	return out.Facts.Status, out.Content[0].Text
}

func gitCall(t *testing.T, file string, changes []gitChange) call.Call {
	t.Helper()
	b, err := json.Marshal(map[string]any{"file": file, "changes": changes})
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := json.Unmarshal(b, &values); err != nil {
		t.Fatal(err)
	}
	args, err := call.ArgsOf(values)
	if err != nil {
		t.Fatal(err)
	}
	return call.Call{Args: args}
}

// TestGitAsks: a person is asked before what was there changes, also by one more key of the same remote, and before a
// later push could go elsewhere. A new branch that follows a remote which was there asks nothing.
func TestGitAsks(t *testing.T) {
	was := map[string][]string{"remote.origin.url": {"https://example.com/o"}}
	for _, row := range []struct {
		now  map[string][]string
		want int
	}{
		{map[string][]string{"remote.origin.url": {"https://example.com/o"}, "branch.b.remote": {"origin"}, "branch.b.merge": {"refs/heads/b"}}, 2},
		{map[string][]string{"remote.origin.url": {"https://example.com/o"}, "submodule.s.url": {"https://example.com/s"}}, 2},
		{map[string][]string{"remote.origin.url": {"https://example.com/o"}, "remote.up.url": {"https://example.com/u"}}, 3},
		{map[string][]string{"remote.origin.url": {"https://example.com/o"}, "push.default": {"current"}}, 3},
		{map[string][]string{"remote.origin.url": {"https://example.com/p"}}, 3},
		{map[string][]string{}, 3},
		{map[string][]string{"remote.origin.url": {"https://example.com/o"}, "remote.origin.pushurl": {"https://example.com/u"}}, 3},
	} {
		changes, refused := differences(was, row.now)
		if danger, _ := judgeGit(gitCall(t, "/x/config", changes), contract.Contract{}); danger != row.want || len(refused) > 0 {
			t.Errorf("%v: danger %d, refused %v", row.now, danger, refused)
		}
	}
}

// TestGitGroups: a remote whose address cannot be written leaves nothing behind, nor does a branch that follows it.
func TestGitGroups(t *testing.T) {
	changes, refused := differences(map[string][]string{}, map[string][]string{
		"remote.l.url": {"/x/l.git"}, "remote.l.fetch": {"+refs/heads/*:refs/remotes/l/*"},
		"branch.a.remote": {"l"}, "branch.a.merge": {"refs/heads/a"},
		"remote.up.url": {"https://example.com/u"}, "branch.b.remote": {"up"},
	})
	var names []string
	for _, c := range changes {
		names = append(names, c.Key)
	}
	if !slices.Equal(names, []string{"branch.b.remote", "remote.up.url"}) ||
		!slices.Equal(refused, []string{"branch.a.merge", "branch.a.remote", "remote.l.fetch", "remote.l.url"}) {
		t.Errorf("%q, refused %q", names, refused)
	}
}

// TestGitParts: what needs an answer does not hold up the rest, and takes the branches along that follow it.
func TestGitParts(t *testing.T) {
	changes, _ := differences(map[string][]string{"remote.origin.url": {"https://example.com/o"}}, map[string][]string{
		"remote.origin.url": {"https://example.com/o"}, "remote.up.url": {"https://example.com/u"},
		"branch.a.remote": {"origin"}, "branch.a.merge": {"refs/heads/a"}, "branch.b.remote": {"up"}, "branch.b.merge": {"refs/heads/b"},
		"submodule.s.url": {"https://example.com/s"},
	})
	var got []string
	for _, part := range parts(changes) {
		for _, c := range part {
			got = append(got, c.Key)
		}
		got = append(got, "|")
	}
	if want := "branch.a.merge branch.a.remote submodule.s.url | branch.b.merge branch.b.remote remote.up.url |"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPushElsewhereAsks: a person is asked before a later plain push of a branch goes to another remote, and before a
// later commit has another author.
func TestPushElsewhereAsks(t *testing.T) {
	for _, row := range []struct {
		key, now, code string
	}{
		{"branch.b.pushremote", "public", "git_config.push"}, {"branch.b.remote", "public", "git_config.push"},
		{"remote.up.url", "https://example.com/u", "git_config.push"}, {"push.default", "current", "git_config.push"},
		{"user.email", "eve@example.com", "git_config.identity"}, {"user.name", "Eve", "git_config.identity"},
		{"branch.b.remote", "origin", ""}, {"branch.b.remote", ".", ""}, {"branch.b.merge", "refs/heads/b", ""},
	} {
		code := ""
		if why := (gitChange{Key: row.key, Now: []string{row.now}}).asks(); why != nil {
			code = why.Code
		}
		if code != row.code {
			t.Errorf("%s = %s: %q, want %q", row.key, row.now, code, row.code)
		}
	}
}
