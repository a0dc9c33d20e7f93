package config

import (
	"path"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"waldo/internal/config/outline"
	"waldo/internal/config/strictyaml"
	"waldo/internal/model/contract"
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
		{"git", custom(boolShape, (*parser).git, func(m *contract.Mount) any {
			if m.Git {
				return true
			}
			return nil
		}),
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

func showMounts(s *contract.Server) any {
	all := mounts.normal(s)
	for _, m := range s.Mounts {
		if all[m.Target] = m.From; m.Writable {
			all[m.Target] = mount.normal(&m)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// mounts reads the files that a server's sandbox shows: input, and absolute paths of the sandbox.
func (p *parser) mounts(f field, s *contract.Server) {
	for _, e := range p.Entries(f) {
		if !strings.HasPrefix(e.Name, "/") {
			if e.Name != "input" {
				hint := strictyaml.Meant(e.Name, []string{"input"})
				if hint == "" {
					hint = "input, or an absolute path of the sandbox, as in /project: ./project"
				}
				p.Fail(e.Key, "key.unknown", hint, "unknown key %q in mounts", e.Name)
				continue
			}
			mounts.key("input").value.read(p, e, s)
			continue
		}
		m := contract.Mount{Target: e.Name, At: p.At(e.Key)}
		if why := badTarget(e.Name); why != "" {
			p.Fail(e.Key, "value.path", "as in /project", "%s: %q", why, contract.Cut(e.Name, 60))
		}
		if e.Val.Kind == yaml.MappingNode {
			mount.read(p, e, &m)
			if m.From == "" {
				p.Fail(e.Key, "key.missing", "write from: ./folder", "the mount %s needs from", contract.Cut(e.Name, 60))
			}
		} else {
			m.From = p.Text(e)
		}
		for _, other := range s.Mounts {
			if contract.Within(other.Target, m.Target) || contract.Within(m.Target, other.Target) {
				p.Fail(e.Key, "mounts.nested", "keep one of them", "the mounts %s and %s lie within each other",
					contract.Cut(other.Target, 60), contract.Cut(m.Target, 60))
			}
		}
		s.Mounts = append(s.Mounts, m)
	}
	sort.Slice(s.Mounts, func(i, j int) bool { return s.Mounts[i].Target < s.Mounts[j].Target })
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
