package config

import (
	"path"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"waldo/internal/config/outline"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
)

var mounts = &mapping[contract.Server]{
	name: "mounts",
	doc: "A server's sandbox shows its program, the script of an interpreter, and these files. It " +
		"shows nothing else\nof this machine but `/usr`. [servers.md](../servers.md#files) lists refused paths.",
	example: "servers:\n  s: {command: [server], mounts: {input: ./data, /project: {from: ./project, writable: true}}}\n",
	keys: []key[contract.Server]{
		{"input", text(func(s *contract.Server) *string { return &s.Input }),
			"none", "A folder of this machine, shown read-only at /workspace/input; from the folder of this file.",
			"internal/executor/upstream"},
		{outline.AnyPath, value[contract.Server]{shapes: []outline.Shape{textShape, mount.shape()}},
			"none",
			"A file or folder of this machine, shown read-only at that path of the sandbox; from the folder of this file.",
			"internal/executor/upstream"},
	},
}

var mount = &mapping[contract.Mount]{
	name: "mount",
	keys: []key[contract.Mount]{
		{"from", text(func(m *contract.Mount) *string { return &m.From }),
			"", "The file or folder of this machine.", "internal/executor/upstream"},
		{"writable", boolean(func(m *contract.Mount) *bool { return &m.Writable }),
			"false", "Whether the server can change what is in the folder. Only the disk bounds what it writes.",
			"internal/executor/upstream"},
		{"git", custom(boolShape, (*parser).git),
			"false", "With writable: whether the server can write the repositories in it, but for their hooks and " +
				"configuration.",
			"internal/executor/upstream"},
	},
}

func (p *parser) git(f field, m *contract.Mount) {
	if m.Git = p.Boolean(f); m.Git {
		p.Warn(p.At(f.Key), "mount.git", "leave it out where the server makes no commits",
			"a server that writes a repository can make your own git run a program, as by .git/commondir")
	}
}

// mounts reads the files that a server's sandbox shows: input, and absolute paths of the sandbox.
func (p *parser) mounts(f field, s *contract.Server) {
	for _, e := range p.Entries(f) {
		if e.Name == "input" {
			mounts.key("input").value.read(p, e, s)
			continue
		}
		s.Mounts = p.mount(e, mount, []string{"input"}, s.Mounts)
	}
	sort.Slice(s.Mounts, func(i, j int) bool { return s.Mounts[i].Target < s.Mounts[j].Target })
}

// mount reads one mount, by the path at which the sandbox has it, and appends it to those before. words are other keys.
func (p *parser) mount(e field, as *mapping[contract.Mount], words []string, before []contract.Mount) []contract.Mount {
	if !strings.HasPrefix(e.Name, "/") {
		hint := display.Meant(e.Name, words)
		if hint == "" {
			hint = strings.Join(append(words, "an absolute path of the sandbox, as in /project: ./project"), ", or ")
		}
		p.Fail(e.Key, "key.unknown", hint, "unknown key %q in mounts", e.Name)
		return before
	}
	m := contract.Mount{Target: e.Name, At: p.At(e.Key)}
	if why := badTarget(e.Name); why != "" {
		p.Fail(e.Key, "value.path", "as in /project", "%s: %q", why, contract.Cut(e.Name, 60))
	}
	if e.Val.Kind == yaml.MappingNode {
		as.read(p, e, &m)
		if m.From == "" {
			p.Fail(e.Key, "key.missing", "write from: ./folder", "the mount %s needs from", contract.Cut(e.Name, 60))
		}
	} else {
		m.From = p.Text(e)
	}
	for _, other := range before {
		if contract.Within(other.Target, m.Target) || contract.Within(m.Target, other.Target) {
			p.Fail(e.Key, "mounts.nested", "keep one of them", "the mounts %s and %s lie within each other",
				contract.Cut(other.Target, 60), contract.Cut(m.Target, 60))
		}
	}
	return append(before, m)
}

// projects are the mounts of a contract. A writable one is the live folder of the person that runs waldo.
var projects = &mapping[contract.Contract]{
	name: "contract mounts",
	doc: "A sandboxed capability shows these files of this machine. In a writable folder the names that run later\n" +
		"outside of the sandbox are read-only. [inside.md](../inside.md) lists them.",
	example: "capabilities:\n  exec: {transport: sandboxed_exec, mounts: {/home/me/app: {from: ./app, writable: true}}}\n",
	keys: []key[contract.Contract]{
		{outline.AnyPath, value[contract.Contract]{shapes: []outline.Shape{textShape, project.shape()}},
			"none",
			"A file or folder of this machine, shown read-only at that path of the sandbox; from the folder of this file.",
			"internal/executor/runner"},
	},
}

var project = &mapping[contract.Mount]{
	name: "contract mount",
	keys: []key[contract.Mount]{
		{"from", text(func(m *contract.Mount) *string { return &m.From }),
			"", "The file or folder of this machine.", "internal/executor/runner"},
		{"writable", boolean(func(m *contract.Mount) *bool { return &m.Writable }),
			"false", "Whether the sandbox can change what is in the folder, but for protected names.",
			"internal/executor/protect"},
	},
}

func (p *parser) projects(f field, c *contract.Contract) {
	for _, e := range p.Entries(f) {
		c.Mounts = p.mount(e, project, nil, c.Mounts)
	}
	sort.Slice(c.Mounts, func(i, j int) bool { return c.Mounts[i].Target < c.Mounts[j].Target })
}

// ownPlaces are the places that every sandbox has itself: nothing is shown there, above or below.
var ownPlaces = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/dev", "/proc", "/sys", "/old",
	"/workspace/input", "/workspace/output", "/workspace/tmp", "/opt/server", contract.DataAt,
}

// badTarget says why a sandbox cannot be shown anything at a path; "": it can.
func badTarget(target string) string {
	if target != path.Clean(target) || target == "/" {
		return "not a plain absolute path of the sandbox"
	}
	for _, own := range ownPlaces {
		if contract.Within(target, own) || contract.Within(own, target) {
			return "a place that every sandbox has itself (" + own + ")"
		}
	}
	if target == "/tmp" {
		return "a place that every sandbox has itself (/tmp)"
	}
	return ""
}
