package runner

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"sort"
	"strings"

	"waldo/internal/core/policy"
	"waldo/internal/executor/commands"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/guest"
	"waldo/internal/sandbox/loader"
	"waldo/internal/sandbox/template"
	"waldo/internal/storage/workspace"
)

// MaxCommand limits a shell command in bytes, below the kernel's 128 KiB for one argument.
const MaxCommand = 100 << 10

// MaxFiles is how many files one call may bring along.
const MaxFiles = 64

// job is the command of one sandbox, with its input and files.
type job struct {
	argv    []string
	dir     string          // where it starts; empty: /workspace
	first   string          // the start of stdin, the same for every script of the language; can be empty
	fork    string          // the same for a zygote that sandboxes are forked from; can be empty
	head    *strings.Reader // the next part of stdin; can be nil
	tools   bool            // the code has a runtime that uses the bridge, and the bridge is served
	files   []file
	resumes string           // the id of the suspended program that goes on; empty: a fresh one runs
	session call.Session     // of the program that goes on
	waits   []string         // the approvals that it waits for
	place   *call.Suspension // where the program is written down; nil: it is not suspended
	env     []string         // K=V of the secrets that the contract reveals; prewarmed interpreters never have them
	only    *sandbox.Only    // what the command may execute, open and change; nil: all that the sandbox shows
}

type file struct{ name, text string }

// host is the root that runs start from which ask for no other.
var host = sandbox.Template{Name: "host"}

// interpreters lists the paths of an interpreter in a root, most wanted first. A sandbox shows only /usr of the host,
// so shims in home folders do not work there.
var interpreters = map[guest.Lang][]string{
	guest.Python:     {"/usr/bin/python3", "/usr/local/bin/python3"},
	guest.JavaScript: {"/usr/bin/node", "/usr/local/bin/node", "/usr/bin/nodejs"},
	guest.TypeScript: {"/usr/bin/node", "/usr/local/bin/node", "/usr/bin/nodejs"},
	"shell":          {"/bin/bash", "/usr/bin/bash", "/bin/sh"},
}

// hints say what to install.
var hints = map[guest.Lang]string{
	guest.Python:     "install python3 (Debian: apt install python3)",
	guest.JavaScript: "install Node.js 20 or later under /usr",
	guest.TypeScript: "install Node.js 20 or later under /usr", "shell": "install a shell as /bin/sh",
}

// scripts are the capabilities that run a script in a language.
var scripts = map[call.Capability]guest.Lang{
	"run_python": guest.Python, "run_javascript": guest.JavaScript, "run_typescript": guest.TypeScript,
}

// job reads the arguments of a decided call. It refuses invalid arguments with the reason.
func (r *Runner) job(d policy.Decision, o Options) (job, *call.Reason) {
	var j job
	var why *call.Reason
	switch lang, ok := scripts[d.Call.Capability]; {
	case ok:
		j, why = r.script(d, o, lang)
	case d.Call.Capability == "run_shell":
		j, why = shell(d, o)
	default:
		j, why = r.program(d, o)
	}
	if why != nil || j.only != nil { // a program that waldo has a rule for gets its rule's environment alone
		return j, why
	}
	env, why := r.revealed(d, o)
	j.env = append(j.env, env...)
	return j, why
}

// scriptCall are the arguments of a call that runs a script.
type scriptCall struct {
	Code  *string           `json:"code"`
	Args  []string          `json:"args"`
	Files map[string]upload `json:"files"`
	// Resume is the id of a suspended program, in place of code.
	Resume string `json:"resume"`
}

func scriptArgs(d policy.Decision) (a scriptCall, why *call.Reason) {
	if decode(d.Call.Args, &a) != nil || a.Code == nil {
		return a, &call.Reason{
			Code: "args.invalid", Text: string(d.Call.Capability) +
				" takes code (text), args (a list of texts) and files (by name, texts or {base64: …})",
		}
	}
	return a, nil
}

// script makes a job of {code, args, files}.
func (r *Runner) script(d policy.Decision, o Options, lang guest.Lang) (job, *call.Reason) {
	a, why := scriptArgs(d)
	if why != nil {
		return job{}, why
	}
	exe, why := o.interpreter(lang)
	if why != nil {
		return job{}, why
	}
	s := guest.Script{Lang: lang, Name: o.Name, Code: []byte(*a.Code), Args: a.Args}
	if r.Bridge != nil && !o.NoTools {
		s.Servers = r.Means.Servers(d.Call)
	}
	argv, first, err := guest.Start{Lang: lang, Warm: r.Warm}.Command()
	if err != nil {
		return job{}, &call.Reason{Code: "args.invalid", Text: err.Error()}
	}
	script, err := s.Job()
	if err != nil {
		return job{}, &call.Reason{Code: "args.invalid", Text: err.Error()} // says only what was asked
	}
	j := job{
		argv: append([]string{exe}, argv...), first: first, fork: guest.Start{Lang: lang}.Zygote(), head: script,
		tools: r.Bridge != nil && !o.NoTools,
	}
	if why := j.bring(d, r, a.Files); why != nil {
		return job{}, why
	}
	return j, nil
}

// bring checks the files that come with a call.
func (j *job) bring(d policy.Decision, r *Runner, given map[string]upload) *call.Reason {
	if len(given) > 0 && !files(d) {
		return &call.Reason{Code: "files.denied", Text: "the contract gives this capability no workspace, so no files"}
	}
	if len(given) > 0 && d.Contract.Input != "" {
		return &call.Reason{Code: "files.denied", Text: "/workspace/input is a folder of the operator's: leave files out"}
	}
	if len(given) > MaxFiles {
		return &call.Reason{
			Code: "args.invalid", Text: fmt.Sprintf("%d files: at most %d may come with a call", len(given), MaxFiles),
		}
	}
	for name, text := range given {
		clean, err := workspace.Clean(name)
		if err != nil {
			return &call.Reason{
				Code: "args.invalid", Text: fmt.Sprintf("file name %q: it must be relative and stay below the folder", name),
			}
		}
		j.files = append(j.files, file{clean, string(text)})
	}
	sort.Slice(j.files, func(a, b int) bool { return j.files[a].name < j.files[b].name })
	return nil
}

// shell makes a job of {command}.
func shell(d policy.Decision, o Options) (job, *call.Reason) {
	var a struct {
		Command *string `json:"command"`
	}
	if decode(d.Call.Args, &a) != nil || a.Command == nil || strings.ContainsRune(*a.Command, 0) {
		return job{}, &call.Reason{
			Code: "args.invalid", Text: string(d.Call.Capability) + " takes command, a text without NUL",
		}
	}
	if len(*a.Command) > MaxCommand {
		return job{}, &call.Reason{
			Code: "args.invalid", Text: fmt.Sprintf("the command has %d bytes: at most %d run", len(*a.Command), MaxCommand),
		}
	}
	exe, why := o.interpreter("shell")
	if why != nil {
		return job{}, why
	}
	return job{argv: []string{exe, "-c", *a.Command}}, nil
}

// program makes a job of {argv}. The built-in exec runs any program; of another capability the contract names the
// programs, and a table their arguments.
func (r *Runner) program(d policy.Decision, o Options) (job, *call.Reason) {
	if d.Call.Capability != "exec" && d.Call.Capability != call.Launch {
		return r.command(d, o)
	}
	var a struct {
		Argv []string `json:"argv"`
	}
	if decode(d.Call.Args, &a) != nil || len(a.Argv) == 0 || a.Argv[0] == "" || slices.ContainsFunc(a.Argv, hasNUL) {
		return job{}, &call.Reason{
			Code: "args.invalid", Text: string(d.Call.Capability) + " takes argv, a list of texts without NUL",
		}
	}
	if len(d.Contract.Programs) > 0 && !slices.Contains(d.Contract.Programs, a.Argv[0]) {
		return job{}, &call.Reason{
			Code: "program.denied", Text: fmt.Sprintf("the contract does not name the program %q", a.Argv[0]),
		}
	}
	return job{argv: a.Argv}, nil
}

// command makes a job of {argv, stdin} of a cli capability. The arguments are judged once more: tokens in them have
// been restored since the decision.
func (r *Runner) command(d policy.Decision, o Options) (job, *call.Reason) {
	c, stdin, why := commands.Read(d.Contract.Programs, d.Call.Args)
	if why != nil {
		return job{}, why
	}
	if c.Danger < 1 || c.Danger > d.Danger {
		return job{}, &call.Reason{Code: "command.danger", Text: "the command is more dangerous than was decided"}
	}
	j := job{head: stdin, env: c.Env, dir: c.Dir}
	path := c.Program
	if o.Root.Dir == "" { // a root of its own never changes, and has programs of its own
		if path, why = r.Commands.Check(c.Program); why != nil {
			return job{}, why
		}
	}
	j.argv = append([]string{path}, c.Argv[1:]...)
	if !c.Any {
		if j.only, why = o.only(&r.needs, c, path); why != nil {
			return job{}, why
		}
	}
	return j, nil
}

// only returns what a command may use: its program with what that needs to start, what its rule names, and /workspace.
// One that reads changes nothing but temporary files.
func (o Options) only(find *loader.Finder, c commands.Command, program string) (*sandbox.Only, *call.Reason) {
	root, dirs := "/", commands.Folders()
	if o.Root.Dir != "" {
		root = o.Root.Dir
		if own := o.path(); len(own) > 0 {
			dirs = own
		}
	}
	programs := []string{program}
	for _, e := range c.Execute {
		programs = append(programs, loader.Glob(root, e)...)
	}
	files, err := find.Needs(root, dirs, programs...)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &call.Reason{Code: "program.absent", Text: "the program " + c.Program + ", or one that it needs, is not " +
			"in the sandbox's root"}
	}
	if err != nil {
		return nil, &call.Reason{Code: "program.files", Text: "the program " + c.Program + ": " + err.Error()}
	}
	only := &sandbox.Only{Execute: files.Execute, Read: append(files.Read, "/workspace/", "/tmp/"),
		Write: []string{"/workspace/tmp/", "/tmp/"}}
	if c.Danger > 1 {
		only.Write = []string{"/workspace/", "/tmp/"}
	}
	for _, r := range c.Read {
		only.Read = append(only.Read, loader.Glob(root, r)...)
	}
	return only, nil
}

func hasNUL(s string) bool { return strings.ContainsRune(s, 0) }

func decode(a call.Args, out any) error {
	if a.Value().IsZero() {
		return fmt.Errorf("no arguments")
	}
	return a.Value().Decode(out)
}

// interpreter returns a language's interpreter on the host or, with a template, in its root. In a template it tries
// the paths in first, then those under /usr/local, then the distribution's.
func interpreter(lang guest.Lang, root sandbox.Template, first []string) (string, *call.Reason) {
	places, look, where := interpreters[lang], os.Stat, "under /usr"
	if root.Dir != "" {
		places = slices.Clone(places)
		slices.SortStableFunc(places, func(a, b string) int { return local(a) - local(b) })
		places = append(first, places...)
		look = func(p string) (os.FileInfo, error) { return template.Look(root.Dir, p) }
		where = "in the template " + root.Name
	}
	for _, p := range places {
		if st, err := look(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", &call.Reason{
		Code: "interpreter.absent", Text: fmt.Sprintf("no interpreter for %s %s; hint: %s", lang, where, hints[lang]),
	}
}

func local(p string) int {
	if strings.HasPrefix(p, "/usr/local/") {
		return 0
	}
	return 1
}

// files reports whether the contract shows the code the session's workspace.
func files(d policy.Decision) bool { return d.Contract.Filesystem == contract.WorkspaceOnly }

// environment is everything that the code inherits. Requested lines come first, so that ours win.
func environment(asked []string, run call.Run) []string {
	dirs := append(slices.Clone(run.Path), "/usr/local/bin", "/usr/bin", "/bin")
	tmp := "/workspace/tmp"
	if run.At != "" {
		tmp = "/tmp"
	}
	ours := []string{"PATH=" + strings.Join(dirs, ":"), "HOME=" + cmp.Or(run.Home, run.At, tmp), "TMPDIR=" + tmp}
	if run.Home == "" {
		ours = append(ours, "LANG=C.UTF-8") // a session of a person has the person's own
	}
	var env []string
	for _, kv := range asked {
		k, _, ok := strings.Cut(kv, "=")
		if ok && k != "" && !hasNUL(kv) &&
			!slices.ContainsFunc(ours, func(o string) bool { return strings.HasPrefix(o, k+"=") }) {
			env = append(env, kv)
		}
	}
	return append(env, ours...)
}

// ahead describes a job's command for prewarming, without the job's code. Sandboxes of different principals never
// share an interpreter.
func (j job) ahead(o Options, whose call.Principal) *sandbox.Prestart {
	if j.first == "" {
		return nil
	}
	return &sandbox.Prestart{
		Argv: j.argv, Env: o.imaged(o.Env), Prelude: j.first, Bridge: j.tools, Zygote: j.fork, Domain: string(whose),
	}
}

// profile lists everything that the sandbox of a decided call can touch. Input and output start as copies of the
// session's, so that no folder of the host is writable in the sandbox.
func (r *Runner) profile(d policy.Decision, o Options, ws *workspace.Workspace) sandbox.Profile {
	l := r.limits(d, o)
	p := sandbox.Profile{
		ID: id.New(id.Sandbox), Template: o.template(), Limits: l, Mounts: o.template().Folders(),
		Owner: string(d.Call.Principal),
	}
	p.Mounts, p.Terminals = append(p.Mounts, o.Furnished...), d.Call.Capability == call.Launch
	if p.Terminals && o.TTY != nil {
		p.Console = o.TTY.Name()
	}
	for _, m := range o.mounts {
		p.Mounts = append(p.Mounts, m.Mount)
		if m.uid > 0 && p.Template.UID == 0 {
			p.Template.UID, p.Template.GID = m.uid, m.gid
		}
	}
	if o.Whole {
		t := sandbox.Tmpfs{Target: whole, Bytes: l.Disk, Inodes: l.Inodes, Export: true, Except: apart}
		if o.At != "" {
			t.Target, t.Except = o.At, nil
		}
		if ws != nil {
			t.Seed = ws.Path(workspace.Files)
		}
		p.Tmpfs = append(p.Tmpfs, t)
	}
	for _, f := range []workspace.Folder{workspace.Input, workspace.Output, workspace.Tmp} {
		at := path.Join("/workspace", string(f))
		if f == workspace.Input && o.Input != "" {
			p.Mounts = append(p.Mounts, sandbox.Mount{Source: o.Input, Target: at, Hidden: o.hidden, Exact: true})
			continue
		}
		t := sandbox.Tmpfs{Target: at, Bytes: l.Disk, Inodes: l.Inodes}
		t.Sealed = f == workspace.Input
		t.Export = f == workspace.Output // lists written files even without a workspace
		if ws != nil && f != workspace.Tmp {
			t.Seed = ws.Path(f)
		}
		p.Tmpfs = append(p.Tmpfs, t)
	}
	if len(o.spilled) > 0 {
		p.Tmpfs = append(p.Tmpfs, sandbox.Tmpfs{Target: target(workspace.Spill), Bytes: l.Disk, Inodes: l.Inodes, Sealed: true,
			Seed: ws.Path(workspace.Spill), Only: o.spilled})
	}
	tmp := sandbox.Tmpfs{Target: "/tmp", Bytes: l.Disk, Inodes: l.Inodes} // many programs need it
	if tmp.Export = o.At != ""; tmp.Export && ws != nil {
		tmp.Seed = ws.Path(workspace.Tmp)
	}
	p.Tmpfs = append(p.Tmpfs, tmp)
	return p
}
