package files

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/model/contract"
)

// For is the machine with the folders that the servers of a configuration can change, and the places of its paths.
// Programs that waldo starts, and files that it mounts, must not come from the former.
func (m Machine) For(cfg *contract.Config) Machine {
	m.places = cfg.Places
	for _, c := range cfg.Contracts {
		for _, x := range c.Mounts {
			if from, err := x.At.Beside(x.From); x.Writable && err == nil {
				m.changeable = append(m.changeable, resolved(from))
			}
		}
	}
	for _, s := range cfg.Servers {
		for _, x := range s.Mounts {
			if from, err := s.At.Beside(x.From); x.Writable && err == nil {
				m.changeable = append(m.changeable, resolved(from))
			}
		}
	}
	return m
}

// below returns the writable folder that a path leads into, directly or by a link on its way, or "". The folder
// itself does not count: a server in it cannot exchange it.
func (m Machine) below(at string) string {
	for ; at != "/" && at != "."; at = filepath.Dir(at) {
		real, parent := resolved(at), resolved(filepath.Dir(at))
		for _, w := range m.changeable {
			if real != w && contract.Within(real, w) || contract.Within(parent, w) { // leads into it, or is in it
				return w
			}
		}
	}
	return ""
}

// Outside returns the faults of the programs that waldo runs outside of any sandbox: servers placed there, commands
// that print secrets, and the command of approval.notify. A program or file argument in a folder that a server can
// change would run the server's code.
func (m Machine) Outside(cfg *contract.Config) (faults []Fault) {
	m = m.For(cfg)
	if len(m.changeable) == 0 {
		return nil
	}
	look := func(what string, at contract.Position, words []string) {
		for _, word := range Words(at, words) {
			if _, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(word, "-") {
				word = value
			}
			if !filepath.IsAbs(word) {
				continue
			}
			if w := m.below(word); w != "" {
				faults = append(faults,
					Fault{At: at, Refused: true,
						Text: fmt.Sprintf("%s runs outside of any sandbox, and names %s, which a server can change (%s is writable)",
							what, word, w),
						Hint: "move it to a folder that no server can write"})
				return
			}
		}
	}
	for _, s := range cfg.Servers {
		if s.Placement == "outside" && len(s.Command) > 0 {
			look("server "+s.Name, s.CommandAt, s.Command)
		}
	}
	for _, s := range cfg.Secrets {
		look("the command of secret "+s.Name, s.At, s.Spec.Command)
	}
	taken := func(what string, at contract.Position, name string) {
		if from, err := at.Beside(name); name != "" && err == nil {
			if w := m.below(from); w != "" {
				faults = append(faults, Fault{At: at, Refused: true,
					Text: fmt.Sprintf("%s is %s, in whose place a server can put another (%s is writable)", what, from, w),
					Hint: "move it to a folder that no server can write"})
			}
		}
	}
	for _, c := range cfg.Contracts {
		taken("the input of "+c.Pattern, c.At, c.Input)
		for _, x := range c.Mounts {
			taken("a mount of "+c.Pattern, x.At, x.From)
		}
		if file, ok := contract.SQLiteFile(c.Database); ok {
			taken("the database of "+c.Pattern, c.Keys["url"], file)
		}
		if strings.HasPrefix(c.Template, "/") || strings.HasPrefix(c.Template, ".") {
			taken("the template of "+c.Pattern, c.At, c.Template)
		}
		for _, r := range c.Network.Packages {
			taken("a lock file of "+c.Pattern, c.At, r.Lock)
		}
	}
	for _, s := range cfg.Secrets {
		if kind, name, ok := strings.Cut(string(s.Spec.From), ":"); ok &&
			slices.Contains([]string{"file", "dotenv", "age"}, kind) {
			name, _, _ = strings.Cut(name, "#")
			taken("the source of secret "+s.Name, s.At, name)
		}
	}
	look("approval.notify", contract.Position{File: cfg.File}, cfg.Approval.Notify)
	slices.SortFunc(faults, func(a, b Fault) int { return strings.Compare(a.Text, b.Text) })
	return faults
}
