package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"waldo/internal/app"
	"waldo/internal/core/policy"
	"waldo/internal/core/session"
	"waldo/internal/detect/pattern"
	"waldo/internal/executor/direct"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/storage/safefile"
)

// A session sees a copy of each repository's configuration, so that git works in it as outside. The repository's own
// stays as it is. At the end the capability git_config writes the harmless keys that the session set, and no other.

// maxGitConfig bounds a configuration of git, in bytes.
const maxGitConfig = 256 << 10

// lender makes the copies of one session, in the session's folder.
type lender struct {
	dir  string // on this machine
	lent []lentConfig
}

type lentConfig struct {
	file, name string // the repository's, and the copy's below dir
	was        map[string][]string
}

// lend copies a configuration of git, and returns where the session has it; empty: git is not here or cannot read it.
func (l *lender) lend(file string) string {
	b, err := os.ReadFile(file)
	if err != nil || len(b) > maxGitConfig {
		return ""
	}
	was, err := settings(b)
	if err != nil {
		return ""
	}
	c := lentConfig{file, fmt.Sprintf("git/%d/config", len(l.lent)), was}
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		return ""
	}
	defer root.Close()
	if write(root, c.name, b) != nil {
		return ""
	}
	l.lent = append(l.lent, c)
	return sessionAt + "/" + c.name
}

// gitChange is what a session did to one key.
type gitChange struct {
	Key   string   `json:"key"`
	Was   []string `json:"was"`
	Now   []string `json:"now"`
	Known bool     `json:"known"` // the configuration had something of the same remote, branch or section
}

// differences returns what became of each key that can be written, and the names of the others that changed. A remote
// without an address that can be written is none, and its branches follow nothing.
func differences(was, now map[string][]string) (all []gitChange, refused []string) {
	keys, after := maps.Clone(was), maps.Clone(now)
	maps.Copy(keys, now)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Equal(was[k], now[k]) {
			all = append(all, gitChange{k, append([]string{}, was[k]...), append([]string{}, now[k]...), known(was, k)})
		}
	}
	for again := true; again; {
		again = false
		all = slices.DeleteFunc(all, func(c gitChange) bool {
			lone := strings.HasSuffix(c.Key, ".fetch") && len(c.Now) > 0 && len(after[group(c.Key)+"url"]) == 0 ||
				strings.HasSuffix(c.Key, ".merge") && len(c.Now) > 0 && len(after[group(c.Key)+"remote"]) == 0
			if !lone && c.check(after) == nil {
				return false
			}
			if again, refused, after[c.Key] = true, append(refused, c.Key), c.Was; len(c.Was) == 0 {
				delete(after, c.Key)
			}
			return true
		})
	}
	slices.Sort(refused)
	return all, refused
}

// group is a key without its last name: that of a remote, a branch or a section.
func group(key string) string { return key[:strings.LastIndex(key, ".")+1] }

func known(was map[string][]string, key string) bool {
	for k := range was {
		if strings.HasPrefix(k, group(key)) {
			return true
		}
	}
	return false
}

// The values that a settable key can have. None names a program or a file of this machine.
var (
	gitURL = pattern.Lazy(`^(?:(?:https?|ssh|git)://(?:[A-Za-z0-9_][^\s/@"'\\;|&$<>]*@)?|[A-Za-z0-9_][A-Za-z0-9._-]*@)` +
		`[A-Za-z0-9][A-Za-z0-9.-]*(?::[^\s:"'\\;|&$<>-]|/)[^\s"'\\;|&$<>]*$`)
	gitRefspec = pattern.Lazy(`^\+?refs/[^\s:]+(?::refs/(?:remotes|tags)/[^\s:]+)?$`)
	gitRef     = pattern.Lazy(`^refs/[^\s:]+$`)
	gitName    = pattern.Lazy(`^(?:\.|[A-Za-z0-9_][A-Za-z0-9_./-]*)$`)
	gitText    = pattern.Lazy(`^[^\x00-\x1f\x7f-][^\x00-\x1f\x7f]*$`)
	gitWord    = pattern.Lazy(`^(?:true|false|only|merges|simple|current|upstream|nothing|matching|--tags|--no-tags)$`)
)

var settable = map[string]func() *regexp.Regexp{
	"remote.*.url": gitURL, "remote.*.pushurl": gitURL, "remote.*.fetch": gitRefspec, "remote.*.prune": gitWord,
	"remote.*.tagopt": gitWord, "branch.*.remote": gitName, "branch.*.pushremote": gitName, "branch.*.merge": gitRef,
	"branch.*.rebase": gitWord, "branch.*.description": gitText, "submodule.*.url": gitURL, "submodule.*.active": gitWord,
	"submodule.*.branch": gitName, "submodule.active": gitName, "user.name": gitText, "user.email": gitText,
	"pull.rebase": gitWord, "pull.ff": gitWord, "fetch.prune": gitWord, "push.default": gitWord,
	"push.autosetupremote": gitWord,
}

// check returns why a change cannot be written. after is the whole configuration as it would be.
func (c gitChange) check(after map[string][]string) error {
	first, last := strings.Index(c.Key, "."), strings.LastIndex(c.Key, ".")
	kind := c.Key
	if first < 0 {
		return fmt.Errorf("%q is no key", c.Key)
	}
	if first < last {
		kind = c.Key[:first] + ".*" + c.Key[last:]
		if !gitText().MatchString(c.Key[first+1 : last]) {
			return fmt.Errorf("%q cannot be set: its name is not plain", c.Key)
		}
	}
	form := settable[kind]
	if form == nil {
		return fmt.Errorf("%q cannot be set: it can name programs or files", c.Key)
	}
	for _, v := range c.Now {
		if !form().MatchString(v) || strings.Contains(v, "::") || len(v) > 2000 {
			return fmt.Errorf("%q cannot be set to %q", c.Key, v)
		}
		if strings.HasSuffix(kind, "remote") && v != "." && len(after["remote."+v+".url"]) == 0 {
			return fmt.Errorf("%q names %q, which is no remote", c.Key, v) // git would take it for a path
		}
	}
	return nil
}

// settle has what the session set written, where it may be. It returns lines for the person.
func (l *lender) settle(ctx context.Context, h *app.App, n session.Info) (lines []string) {
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		return nil
	}
	defer root.Close()
	for _, c := range l.lent {
		now, err := c.now(root)
		if err != nil {
			lines = append(lines, fmt.Sprintf("git_config: what the session did to %s is dropped: %v", facts.Name(c.file), err))
			continue
		}
		changes, refused := differences(c.was, now)
		if len(refused) > 0 {
			lines = append(lines, fmt.Sprintf("git_config: %s of %s held in the session alone: no agent sets it for you",
				facts.Name(several(refused)), facts.Name(c.file)))
		}
		for _, part := range parts(changes) {
			lines = append(lines, settlePart(ctx, h, n, c.file, part)...)
		}
	}
	return lines
}

// settlePart has some changes written, all or none.
func settlePart(ctx context.Context, h *app.App, n session.Info, file string, changes []gitChange) (lines []string) {
	r, err := writeThrough(ctx, h, n, file, changes)
	state := "written to"
	if err != nil || r.Status != facts.OK {
		state = "not written to"
	}
	for _, g := range changes {
		lines = append(lines, fmt.Sprintf("git_config: %s %s: %s", state, facts.Name(file), facts.Name(g.String())))
	}
	return append(lines, why(r)...)
}

// parts returns the changes that need no answer of a person, and then those that do, with the branches that follow them.
// An empty part is left out.
func parts(all []gitChange) [][]gitChange {
	ask := map[string]bool{}
	for _, c := range all {
		ask[group(c.Key)] = ask[group(c.Key)] || c.asks() != nil
	}
	for _, c := range all {
		if strings.HasPrefix(c.Key, "branch.") && slices.ContainsFunc(c.Now, func(v string) bool { return ask["remote."+v+"."] }) {
			ask[group(c.Key)] = true
		}
	}
	out := make([][]gitChange, 2)
	for _, c := range all {
		n := 0
		if ask[group(c.Key)] {
			n = 1
		}
		out[n] = append(out[n], c)
	}
	return slices.DeleteFunc(out, func(part []gitChange) bool { return len(part) == 0 })
}

// asks returns why a person is asked before a change: a later push or pull could go elsewhere, a later commit could have
// another author.
func (c gitChange) asks() *call.Reason {
	if c.Known {
		return &call.Reason{Code: "git_config.known", Text: "a remote, a branch or a section changes that was there before"}
	}
	if strings.HasPrefix(c.Key, "remote.") || strings.HasPrefix(c.Key, "push.") || c.pushesElsewhere() {
		return &call.Reason{Code: "git_config.push", Text: "there is a new remote, or another default of git push: a later push could go there"}
	}
	if strings.HasPrefix(c.Key, "user.") {
		return &call.Reason{Code: "git_config.identity", Text: "later commits of this person would have another author"}
	}
	return nil
}

// pushesElsewhere reports a branch that is pushed to another remote than the one that it has without a section.
func (c gitChange) pushesElsewhere() bool {
	remote := strings.HasSuffix(c.Key, ".remote") || strings.HasSuffix(c.Key, ".pushremote")
	return remote && strings.HasPrefix(c.Key, "branch.") &&
		slices.ContainsFunc(c.Now, func(to string) bool { return to != "origin" && to != "." })
}

// why says why nothing was written.
func why(r call.Result) (lines []string) {
	if r.Status == facts.OK {
		return nil
	}
	for _, w := range r.Why {
		lines = append(lines, "git_config: "+w.Code+": "+w.Text)
	}
	for _, c := range r.Content {
		if r.Status == facts.Failed && c.Text != "" {
			lines = append(lines, "git_config: "+facts.Name(c.Text))
		}
	}
	return lines
}

// now reads the session's copy, which can be anything.
func (c lentConfig) now(root *os.Root) (map[string][]string, error) {
	b, err := safefile.ReadIn(root, c.name, maxGitConfig)
	if err != nil {
		return nil, errors.New("its copy is gone, or no file of a configuration")
	}
	return settings(b)
}

// writeThrough makes the call that a contract decides, that is recorded, and that writes.
func writeThrough(ctx context.Context, h *app.App, n session.Info, file string, changes []gitChange) (call.Result, error) {
	b, err := json.Marshal(map[string]any{"file": file, "changes": changes})
	if err != nil {
		return call.Result{}, err
	}
	var values map[string]any
	if err := json.Unmarshal(b, &values); err != nil {
		return call.Result{}, err
	}
	args, err := call.ArgsOf(values)
	if err != nil {
		return call.Result{}, err
	}
	return h.Broker.Call(ctx, call.Call{ID: id.New(id.Call), Capability: contract.GitConfig, Channel: call.Launch, Args: args,
		Session: n.ID, Principal: n.Principal})
}

// String is the change in a line.
func (c gitChange) String() string {
	now := strings.Join(c.Now, ", ")
	if len(c.Now) == 0 {
		now = "(removed)"
	}
	if len(c.Was) == 0 {
		return c.Key + " = " + now
	}
	return c.Key + " = " + now + ", before " + strings.Join(c.Was, ", ")
}

// gitContract is the contract of git_config where the configuration has none.
func gitContract() contract.Contract {
	at := contract.Position{File: "built-in"}
	return contract.Contract{
		Pattern: contract.GitConfig, At: at, BuiltIn: true, Channel: call.Launch, Transport: contract.Direct, Mode: contract.Write,
		Danger: 2, Timeout: 30 * time.Second, ResponseBudget: 64 << 10, Approval: contract.Approval{When: contract.Never, At: at},
		Log: "full", Trust: "untrusted", Redact: []string{"secrets"},
	}
}

// gitTool is the capability git_config.
func gitTool() direct.Tool {
	return direct.Tool{
		Tool: call.Define(contract.GitConfig, "Write to git's configuration",
			"Writes remotes, branches' upstreams and submodules that a session of waldo launch set. waldo calls it at the end.",
			`{"type":"object","properties":{"file":{"type":"string"},"changes":{"type":"array","items":{"type":"object"}}},`+
				`"required":["file","changes"],"additionalProperties":false}`),
		Run: runGit, Preview: previewGit, Judge: judgeGit,
	}
}

type gitArgs struct {
	File    string      `json:"file"`
	Changes []gitChange `json:"changes"`
}

func gitArgsOf(c call.Call) (a gitArgs, err error) { return a, json.Unmarshal(c.Args.Raw(), &a) }

// judgeGit has a person asked before anything changes that the configuration had, and before it has a new remote or
// another default of git push or another author.
func judgeGit(c call.Call, _ contract.Contract) (danger int, why *call.Reason) {
	a, err := gitArgsOf(c)
	if err != nil {
		return 0, &call.Reason{Code: "git_config.args", Text: "these are no changes of a configuration"}
	}
	for _, g := range a.Changes {
		if why := g.asks(); why != nil {
			return 3, why
		}
	}
	return 2, nil
}

func previewGit(_ context.Context, d policy.Decision) (lines []string) {
	a, err := gitArgsOf(d.Call)
	if err != nil {
		return nil
	}
	for _, g := range a.Changes {
		lines = append(lines, string(display.Text(g.String())))
	}
	return lines
}

// runGit writes the changes to a repository's configuration, all or none.
func runGit(_ context.Context, d policy.Decision) (call.Outcome, error) {
	a, err := gitArgsOf(d.Call)
	if err != nil || !filepath.IsAbs(a.File) || filepath.Base(a.File) != "config" {
		return direct.Refuse(call.Reason{Code: "git_config.args", Text: "these are no changes of a configuration"}), nil
	}
	if err := a.write(); err != nil {
		return direct.Fail(facts.None, err.Error()), nil
	}
	return direct.Done(facts.Confirmed, call.Text("written")), nil
}

// write holds git's own lock. It writes the file in place: a file that is replaced loses its seal in other sandboxes. The
// lock has the new text until the end, so that a power cut loses neither.
func (a gitArgs) write() (err error) {
	root, err := os.OpenRoot(filepath.Dir(a.File))
	if err != nil {
		return err
	}
	defer root.Close()
	const name, lock = "config", "config.lock"
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxGitConfig {
		return errors.New("the configuration of the repository is no file of its own")
	}
	held, err := root.OpenFile(lock, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return errors.New("another git writes to the configuration of the repository: config.lock")
	}
	defer func() { err = errors.Join(err, held.Close(), root.Remove(lock)) }()
	was, err := safefile.ReadIn(root, name, maxGitConfig)
	if err != nil {
		return err
	}
	text, err := a.apply(was)
	if err != nil {
		return err
	}
	if _, err := held.Write(text); err != nil {
		return err
	}
	if err := held.Sync(); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	return errors.Join(f.Truncate(int64(len(text))), f.Sync())
}

// apply returns a configuration with the changes, as git writes it. It refuses a key that has changed since the session
// began.
func (a gitArgs) apply(text []byte) ([]byte, error) {
	now, err := settings(text)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "waldo-git-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	at, before := filepath.Join(dir, "config"), maps.Clone(now)
	if err := os.WriteFile(at, text, 0o600); err != nil {
		return nil, err
	}
	for _, g := range a.Changes {
		if !slices.Equal(now[g.Key], g.Was) || g.Known != known(before, g.Key) {
			return nil, fmt.Errorf("%s changed outside since the session began", g.Key)
		}
		if now[g.Key] = g.Now; len(g.Now) == 0 {
			delete(now, g.Key)
		}
		if len(g.Was) > 0 {
			if _, err := git(nil, "config", "--file", at, "--unset-all", g.Key); err != nil {
				return nil, err
			}
		}
		for _, v := range g.Now {
			if _, err := git(nil, "config", "--file", at, "--add", g.Key, v); err != nil {
				return nil, err
			}
		}
	}
	for _, g := range a.Changes {
		if err := g.check(now); err != nil {
			return nil, err
		}
	}
	out, err := os.ReadFile(at)
	if err != nil {
		return nil, err
	}
	got, err := settings(out)
	if err != nil || !maps.EqualFunc(got, now, slices.Equal) {
		return nil, errors.Join(errors.New("git wrote another configuration than was asked for"), err)
	}
	return out, nil
}

// settings reads a configuration of git with git itself, which follows none of its includes.
func settings(text []byte) (map[string][]string, error) {
	out, err := git(bytes.NewReader(text), "config", "--file", "-", "--no-includes", "--null", "--list")
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for entry := range strings.SplitSeq(string(out), "\x00") {
		if entry == "" {
			continue
		}
		key, value, valued := strings.Cut(entry, "\n")
		if !valued {
			value = "true" // as git reads a key without a value
		}
		all[key] = append(all[key], value)
	}
	return all, nil
}

// git runs git apart from every repository and every configuration of the person.
func git(in io.Reader, args ...string) ([]byte, error) {
	at, err := exec.LookPath("git")
	if err != nil {
		return nil, err
	}
	c := exec.Command(at, args...)
	c.Dir, c.Stdin = "/", in
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent",
		"LC_ALL=C"}
	out, err := c.Output()
	if e := (&exec.ExitError{}); errors.As(err, &e) {
		return nil, fmt.Errorf("git cannot read or write the configuration: %.200s", bytes.TrimSpace(e.Stderr))
	}
	return out, err
}
