package contract

import (
	"path"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// anyPath represents every absolute path under mounts in the table of keys.
const anyPath = "/PATH"

// ownPlaces are the places that every sandbox has itself: nothing is shown there, above or below.
var ownPlaces = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/dev", "/proc", "/sys", "/old",
	"/workspace/input", "/workspace/output", "/workspace/tmp", "/opt/server", DataAt}

// DataAt is where a server finds the lasting folder that `data` gives it.
const DataAt = "/data"

// mounts reads what a server's sandbox is shown: input, and absolute paths of the sandbox.
func (p *parser) mounts(f field, s *Server) {
	for _, e := range p.entries(f) {
		if !strings.HasPrefix(e.name, "/") {
			if e.name != "input" {
				hint := meant(e.name, []string{"input"})
				if hint == "" {
					hint = "input, or an absolute path of the sandbox, as in /project: ./project"
				}
				p.fail(e.key, "key.unknown", hint, "unknown key %q in mounts", e.name)
				continue
			}
			s.Input = p.text(e)
			continue
		}
		m := Mount{Target: e.name, At: p.at(e.key)}
		if why := badTarget(e.name); why != "" {
			p.fail(e.key, "value.path", "as in /project", "%s: %q", why, cut(e.name, 60))
		}
		if e.val.Kind == yaml.MappingNode {
			for _, g := range p.fields(e.val, inMount) {
				switch g.name {
				case "writable":
					m.Writable = p.boolean(g)
				case "git":
					if m.Git = p.boolean(g); m.Git {
						p.warn(p.at(g.key), "mount.git", "leave it out where the server makes no commits", "a server that writes a repository can make your own git run a program, as by .git/commondir")
					}
				default:
					m.From = p.text(g)
				}
			}
			if m.From == "" {
				p.fail(e.key, "key.missing", "write from: ./folder", "the mount %s needs from", cut(e.name, 60))
			}
		} else {
			m.From = p.text(e)
		}
		for _, other := range s.Mounts {
			if Within(other.Target, m.Target) || Within(m.Target, other.Target) {
				p.fail(e.key, "mounts.nested", "keep one of them", "the mounts %s and %s lie within each other", cut(other.Target, 60), cut(m.Target, 60))
			}
		}
		s.Mounts = append(s.Mounts, m)
	}
	sort.Slice(s.Mounts, func(i, j int) bool { return s.Mounts[i].Target < s.Mounts[j].Target })
}

// badTarget says why a sandbox cannot be shown anything at a path; "": it can.
func badTarget(target string) string {
	if target != path.Clean(target) || target == "/" {
		return "not a plain absolute path of the sandbox"
	}
	for _, own := range ownPlaces {
		if Within(target, own) || Within(own, target) {
			return "a place that every sandbox has itself (" + own + ")"
		}
	}
	if target == "/tmp" {
		return "a place that every sandbox has itself (/tmp)"
	}
	return ""
}

// Within reports whether a clean absolute path is dir or lies below it.
func Within(at, dir string) bool {
	return at == dir || strings.HasPrefix(at, strings.TrimSuffix(dir, "/")+"/")
}
