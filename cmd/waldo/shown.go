package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"waldo/internal/agenthosts"
	"waldo/internal/agenthosts/hostimport"
	"waldo/internal/app/configfile"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/pkginstall"
)

// serverFiles lists the files of this machine that the sandbox of one server can see.
type serverFiles struct {
	Server string        `json:"server"`
	Files  []files.Mount `json:"files"`
}

// shownFiles returns the host files that the sandboxes of configured servers can see. A path that exposes too much is
// a problem. A missing file is a warning.
func shownFiles(g *global, cfg *contract.Config) (list []serverFiles, problems, warnings contract.Problems) {
	state, err := configfile.StateDir(g.state)
	if err != nil {
		state = "" // without a state directory there are no data folders
	}
	here := files.Here(state).For(cfg)
	list = []serverFiles{}
	for _, f := range here.Outside(cfg) {
		problems = append(problems, contract.Problem{At: f.At, Code: "files.changeable", Text: f.Text, Hint: f.Hint})
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Servers)) {
		s := cfg.Servers[name]
		if len(s.Command) == 0 {
			continue
		}
		_, packaged, _ := pkginstall.Parse(s.Command)
		_, shown, faults := here.Shown(s, packaged)
		if len(shown) > 0 {
			list = append(list, serverFiles{name, shown})
		}
		for _, f := range faults {
			p := contract.Problem{At: f.At, Code: "server.files", Text: "server " + name + ": " + f.Text, Hint: f.Hint}
			if f.Refused {
				problems = append(problems, p)
			} else {
				warnings = append(warnings, p)
			}
		}
	}
	return list, problems, warnings
}

// tellShown prints the files that the servers' sandboxes can see.
func tellShown(w io.Writer, list []serverFiles) {
	for _, s := range list {
		display.Fprintf(w, "server %s is shown %s\n", s.Server, listed(s.Files))
	}
}

// listed names what is shown, in quoted words where a name could paint the screen.
func listed(shown []files.Mount) string {
	var out []string
	for _, m := range shown {
		text := agenthosts.Show(m.Source)
		if m.Source != m.Target {
			text += " at " + agenthosts.Show(m.Target)
		}
		out = append(out, text+" ("+m.Why+")")
	}
	return strings.Join(out, ", ")
}

// showImported lists the files that each imported server's sandbox will see. It holds back a server with a forbidden
// path.
func (m *importing) showImported(r *imported) error {
	state, err := configfile.StateDir(m.g.state)
	if err != nil {
		return err
	}
	here := files.Here(state)
	r.Shown = []serverFiles{}
	for i := range r.Servers {
		s := &r.Servers[i]
		if len(s.Command) == 0 || s.Held != "" || s.Skipped != "" {
			continue
		}
		_, packaged, _ := pkginstall.Parse(s.Command)
		_, shown, faults := here.Shown(plannedServer(*s), packaged)
		if slices.ContainsFunc(faults, func(f files.Fault) bool { return f.Refused }) && len(s.Propose.Folders) > 0 {
			s.Propose.Folders = nil // do not propose folders that cannot be mounted
			_, shown, faults = here.Shown(plannedServer(*s), packaged)
		}
		if len(shown) > 0 {
			r.Shown = append(r.Shown, serverFiles{s.Name, shown})
		}
		for _, f := range faults {
			if f.Refused && s.Held == "" {
				s.Held = f.Text
				continue
			}
			if f.Missing {
				continue // it may be on another machine: waldo check says so
			}
			s.Notes = append(s.Notes, agenthosts.Flag{Code: "files", Text: f.Error(), At: agenthosts.Pos{Line: lineOf(*s)}})
		}
	}
	return nil
}

// plannedServer is a server to import, as its waldo.yaml will have it.
func plannedServer(s hostimport.Server) contract.Server {
	return contract.Server{Name: s.Name, Command: s.Command, Mounts: s.Propose.Mounts(), At: contract.Position{File: s.Target}}
}

// lineOf returns the line of a server in the host's file.
func lineOf(s hostimport.Server) int {
	n := 0
	_, _ = fmt.Sscanf(s.From[strings.LastIndexByte(s.From, ':')+1:], "%d", &n)
	return n
}
