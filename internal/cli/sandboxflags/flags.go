// Package sandboxflags reads the flags of commands that start a sandbox.
package sandboxflags

import (
	"cmp"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli/exitcode"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
	"waldo/internal/model/secret"
	"waldo/internal/network/egress"
	"waldo/internal/sandbox"
)

// isolations are the levels that --isolation accepts. The policy refuses a level that this machine lacks. The last
// two are in no build yet, so that no hint names them.
var isolations = []string{"auto", "gvisor", "namespace", "confined", "engine", "pod", "microvm"}

// Flags are the flags of run and exec that configure the sandbox.
type Flags struct {
	Tty                       bool // exec only
	Lang, Isolation           string
	cpu                       float64
	memory, pids, files, disk int64
	timeout                   time.Duration
	Output                    int64
	Workspace, Input, servers string
	Hosts, Env, Secrets       []string
	mounts                    []string
	Changes                   string
	Template                  string
	Pull                      bool
	File, Code                string
	seccomp, firejail         bool
	AllowNetwork, denyNetwork bool
	Quiet                     bool
	flags                     interface{ Changed(flag string) bool }
}

func (b *Flags) Add(c *cobra.Command) {
	f := c.Flags()
	b.flags = f
	f.StringVar(&b.Isolation, "isolation", "auto",
		"isolation `LEVEL`: auto, gvisor, namespace, confined or engine (scripts alone); "+
			"one that this machine cannot give is denied (waldo doctor)")
	f.Float64Var(&b.cpu, "cpu-seconds", 10, "CPU `SECONDS` of the whole process tree")
	f.Int64Var(&b.memory, "memory-mb", 512, "memory of the whole tree in `MB`")
	f.Int64Var(&b.pids, "pids", 64, "`N` processes and threads at a time")
	f.Int64Var(&b.files, "files", 64, "`N` open files of one process")
	f.Int64Var(&b.disk, "disk-mb", 256, "`MB` in each writable place")
	f.DurationVar(&b.timeout, "timeout", 30*time.Second, "wall-clock `TIME`, as in 30s")
	f.Int64Var(&b.Output, "output-kb", 200, "`KB` kept of each of stdout and stderr")
	f.StringVar(&b.Workspace, "workspace", "", "keep /workspace in `DIR` instead of waldo's state")
	f.StringVar(&b.Input, "input", "", "show `DIR` read-only as /workspace/input")
	b.AddMounts(c)
	f.StringSliceVar(&b.Hosts, "allow-host", nil,
		"`HOST` that may be reached, as in api.example.com, *.example.com, db.example.com:5432 or GET api.example.com/v1/*; "+
			"with a configuration: only what its contract allows too")
	f.StringVar(&b.servers, "servers-dir", "",
		"the `DIR` that waldo gen wrote; it must exist: code imports servers.NAME.TOOL without it, and calls go to the "+
			"configured servers")
	f.StringArrayVar(&b.Env, "env", nil, "`K=V` in the sandbox's environment; nothing else is inherited")
	f.StringSliceVar(&b.Secrets, "secret", nil,
		"expose secret `NAME` as an environment variable ([VARIABLE=]NAME); must be allowed by the contract")
	f.StringVar(&b.Template, "template", "host",
		"root filesystem `T`: host (this machine's /usr, read-only), a folder, a tar or OCI archive by ./path or /path, "+
			"or an image such as python:3.12-slim")
	f.BoolVar(&b.Pull, "pull", false, "ask the registry again for a --template that is here already")
	f.BoolVar(&b.seccomp, "seccomp", true, "filter system calls: always on, with or without this flag")
	f.BoolVar(&b.firejail, "firejail", false, "accepted for scripts of firejail, without effect: waldo's own sandbox is always used")
	f.BoolVar(&b.AllowNetwork, "allow-network", false,
		"reach every public host at ports 80 and 443, with a warning; with a configuration a human is asked first")
	f.BoolVar(&b.denyNetwork, "disable-network", true, "no network: the default, with or without this flag")
	f.BoolVarP(&b.Quiet, "quiet", "q", false, "do not print the usage report")
}

// Limits returns the limits of the flags. Every number must be positive.
func (b *Flags) Limits() (sandbox.Limits, error) {
	l := sandbox.Limits{
		Wall: b.timeout, CPU: time.Duration(b.cpu * float64(time.Second)), Memory: b.memory << 20, Pids: b.pids,
		Files: b.files, Disk: b.disk << 20, Inodes: app.DefaultLimits.Inodes, Output: b.Output << 10,
	}
	for _, n := range []struct {
		flag, want string
		ok         bool
	}{
		{"--timeout", "more than 0", l.Wall > 0}, {"--cpu-seconds", "more than 0", l.CPU > 0},
		{"--memory-mb", "between 1 and 1048575", b.memory > 0 && b.memory < 1<<20}, {"--pids", "1 or more", b.pids > 0},
		{"--files", "4 or more", b.files > 3}, {"--disk-mb", "between 1 and 1048575", b.disk > 0 && b.disk < 1<<20},
		{"--output-kb", "between 1 and 1048575", b.Output > 0 && b.Output < 1<<20},
	} {
		if !n.ok {
			return l, exitcode.Mistake("leave it out for the default", "%s must be %s", n.flag, n.want)
		}
	}
	if b.changed("timeout") && !b.changed("cpu-seconds") {
		l.CPU = max(l.CPU, l.Wall) // CPU time covers the requested wall time
	}
	return l, nil
}

// changed reports whether a flag was given.
func (b *Flags) changed(flag string) bool { return b.flags != nil && b.flags.Changed(flag) }

// Asked returns the limits whose flags were given. The others are zero, so that the contract decides.
func (b *Flags) Asked(l sandbox.Limits) sandbox.Limits {
	for flag, forget := range map[string]func(){
		"timeout": func() { l.Wall = 0 }, "memory-mb": func() { l.Memory = 0 }, "pids": func() { l.Pids = 0 },
		"files": func() { l.Files = 0 }, "disk-mb": func() { l.Disk = 0 }, "output-kb": func() { l.Output = 0 },
	} {
		if !b.changed(flag) {
			forget()
		}
	}
	if !b.changed("cpu-seconds") && !b.changed("timeout") {
		l.CPU = 0
	}
	l.Inodes = 0
	return l
}

// Refused returns an error for a flag that this build does not support. No flag is ignored.
func (b *Flags) Refused() error {
	switch {
	case b.AllowNetwork && b.changed("disable-network"):
		return exitcode.Mistake("leave one out", "--allow-network and --disable-network do not go together")
	case !b.seccomp:
		return exitcode.Mistake("leave --seccomp out", "system calls are always filtered")
	case !b.denyNetwork:
		return exitcode.Mistake("name the hosts with --allow-host",
			"--disable-network=false would open every host; a sandbox opens named hosts only")
	case !slices.Contains(isolations, b.Isolation):
		return exitcode.Mistake("one of "+strings.Join(isolations[:5], ", "), "unknown isolation level %q", b.Isolation)
	case len(b.Env) > 0 && slices.ContainsFunc(b.Env, func(kv string) bool { return strings.HasPrefix(kv, "=") }):
		return exitcode.Mistake("write it as K=V", "--env: a variable needs a name")
	}
	if st, err := os.Stat(cmp.Or(b.servers, ".")); err != nil || !st.IsDir() {
		return exitcode.Mistake("leave it out: the tools of configured servers are there as servers.NAME.TOOL",
			"--servers-dir %s is not a folder", b.servers)
	}
	if rules, err := egress.ParseRules(b.Hosts); err != nil {
		return exitcode.Mistake("name a host, as in --allow-host api.example.com", "--allow-host: %v", err)
	} else if i := slices.IndexFunc(rules, loopback); i >= 0 {
		return exitcode.Mistake("write network: {allow: [\"localhost:8765\"]} in a contract, which names a port of this machine",
			"--allow-host %s: localhost is the sandbox itself there", b.Hosts[i])
	}
	if err := b.RefusedMounts(); err != nil {
		return err
	}
	for _, s := range b.Secrets {
		if v, ref := Secret(s); !secret.Variable(v) || !usableRef(ref) {
			// The message must not repeat the text, which can be a secret.
			return exitcode.Mistake("--secret NAME, where NAME can name a variable, or --secret VARIABLE=NAME",
				"--secret is not the name of a secret")
		}
	}
	for _, kv := range b.Env {
		if k, _, ok := strings.Cut(kv, "="); !ok || k == "" {
			return exitcode.Mistake("write it as K=V", "--env %s has no =", kv)
		}
	}
	return nil
}

// loopback reports whether a rule names the loopback of this machine. A sandbox has its own loopback.
func loopback(r egress.Rule) bool {
	return r.Host.Name == "localhost" || r.Host.Prefix.IsValid() && r.Host.Prefix.Addr().IsLoopback()
}

// Widen applies the flags to the built-in contracts. A configuration replaces those: flags then only narrow its
// contracts.
func (b *Flags) Widen(cfg *contract.Config, l sandbox.Limits) {
	for i := range cfg.Contracts {
		c := &cfg.Contracts[i]
		if !c.BuiltIn {
			continue
		}
		c.Timeout = l.Wall
		c.ResponseBudget += 2 * int(l.Output) // show all output within --output-kb
		c.Network.Allow, c.Network.Public = slices.Clone(b.Hosts), b.AllowNetwork
		for _, m := range b.Mounts() {
			c.Mounts = append(c.Mounts, contract.Mount{Target: m.Target, From: m.Source, Writable: m.Writable, At: c.At})
		}
		for _, s := range b.Secrets {
			v, ref := Secret(s)
			if c.Secrets == nil {
				c.Secrets = map[string]secret.Ref{}
			}
			c.Secrets[v] = ref
			c.Reveal = append(c.Reveal, v)
		}
		if b.Isolation != "auto" {
			c.Isolation = b.Isolation
		}
	}
}

// Script returns the name and text of the script to run.
func (b *Flags) Script(in io.Reader, args []string) (name, code string, err error) {
	given := slices.DeleteFunc([]string{b.Code, b.File, strings.Join(args, " ")}, func(s string) bool { return s == "" })
	if len(given) != 1 || len(args) > 1 {
		return "", "", exitcode.Mistake("waldo run FILE, or waldo run -c CODE", "give one script: a file or -c")
	}
	if b.Code != "" {
		name, code = "-c", b.Code
	} else if name = given[0]; name == "-" {
		text, err := io.ReadAll(io.LimitReader(in, maxScript+1))
		if err != nil {
			return "", "", exitcode.Mistake("", "standard input: %v", err)
		}
		code = string(text)
	} else {
		info, err := os.Stat(name)
		if err != nil {
			return "", "", exitcode.Mistake("give a file that is there and can be read", "%v", err)
		}
		if !info.Mode().IsRegular() {
			return "", "", exitcode.Mistake("give a file", "%s is not a regular file", name)
		}
		if info.Size() > maxScript {
			return "", "", exitcode.Mistake("keep data in a file and show it with --input",
				"%s has %d bytes; a script may have %d", name, info.Size(), maxScript)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return "", "", exitcode.Mistake("give a file that can be read", "%v", err)
		}
		code = string(text)
	}
	if len(code) > maxScript {
		return "", "", exitcode.Mistake("keep data in a file and show it with --input",
			"the script is longer than %d bytes", maxScript)
	}
	if !utf8.ValidString(code) { // the log records the exact script, and a record is UTF-8
		return "", "", exitcode.Mistake("save it as UTF-8", "%s is not UTF-8 text", name)
	}
	return name, code, nil
}

// OnlyKept refuses flags that a named sandbox does not store, and flags that its snapshot fixes.
func (b *Flags) OnlyKept(c *cobra.Command, pictured bool) error {
	for _, row := range []struct{ flags, hint string }{
		{"workspace input servers-dir", "put files in with waldo sandbox cp"},
		{"env quiet mount changes", "waldo sandbox exec takes its own"},
		{"allow-host allow-network secret", "a contract for exec or run_python says what they reach: waldo init"},
	} {
		for f := range strings.FieldsSeq(row.flags) {
			if c.Flags().Changed(f) {
				return exitcode.Mistake(row.hint, "--%s is not kept with a sandbox", f)
			}
		}
	}
	for f := range strings.FieldsSeq("isolation cpu-seconds memory-mb pids files disk-mb timeout output-kb idle " +
		"pull port") {
		if pictured && c.Flags().Changed(f) {
			return exitcode.Mistake("leave it out: a snapshot has its own", "--%s and a snapshot do not go together", f)
		}
	}
	if pictured && c.Flags().Changed("template") && !id.Is(id.Snapshot, b.Template) {
		return exitcode.Mistake("leave it out: a snapshot has its own", "--template and a snapshot do not go together")
	}
	return b.Refused()
}
