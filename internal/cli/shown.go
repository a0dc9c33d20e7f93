package cli

import (
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"waldo/internal/app/configfile"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/pkginstall"
)

// Shown lists the files of this machine that the sandbox of one server can see.
type Shown struct {
	Server string        `json:"server"`
	Files  []files.Mount `json:"files"`
	Target string        `json:"target,omitempty"` // the waldo.yaml that an imported server goes to
}

// ShownFiles returns the host files that the sandboxes of configured servers can see. A path that exposes too much is
// a problem. A missing file is a warning.
func ShownFiles(stateFlag string, cfg *contract.Config) (list []Shown, problems, warnings contract.Problems) {
	state, err := configfile.StateDir(stateFlag)
	if err != nil {
		state = "" // without a state directory there are no data folders
	}
	here := files.Here(state).For(cfg)
	list = []Shown{}
	for _, f := range here.Outside(cfg) {
		problems = append(problems, contract.Problem{At: f.At, Code: "files.changeable", Text: f.Text, Hint: f.Hint})
	}
	for _, f := range here.Opened(cfg) {
		problems = append(problems, contract.Problem{At: f.At, Code: "folder.refused", Text: f.Text, Hint: f.Hint})
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Servers)) {
		s := cfg.Servers[name]
		if len(s.Command) == 0 {
			continue
		}
		_, packaged, _ := pkginstall.Parse(s.Command)
		_, shown, faults := here.Shown(s, packaged)
		if len(shown) > 0 {
			list = append(list, Shown{Server: name, Files: shown})
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
	return list, problems, append(warnings, absentInputs(cfg)...)
}

// absentInputs returns a warning for each input folder of a contract that is not on this machine.
func absentInputs(cfg *contract.Config) (warnings contract.Problems) {
	for _, c := range cfg.Contracts {
		if c.Input == "" {
			continue
		}
		folder, err := c.At.Beside(c.Input)
		if err == nil {
			var info os.FileInfo
			if info, err = os.Stat(folder); err == nil && info.IsDir() {
				continue
			}
		}
		warnings = append(warnings, contract.Problem{At: c.At, Code: "input.absent",
			Text: "input: " + folder + " is not a folder of this machine; calls are denied until it is",
			Hint: "make the folder, or name another: it is relative to the folder of this file"})
	}
	return warnings
}

// TellShown prints the files that the servers' sandboxes can see.
func TellShown(w io.Writer, list []Shown) {
	for _, s := range list {
		display.Fprintf(w, "server %s is shown %s\n", s.Server, Listed(s.Files))
	}
}

// Listed names what is shown, in quoted words where a name could paint the screen.
func Listed(shown []files.Mount) string {
	var out []string
	for _, m := range shown {
		text := display.Shell(m.Source)
		if m.Source != m.Target {
			text += " at " + display.Shell(m.Target)
		}
		out = append(out, text+" ("+m.Why+")")
	}
	return strings.Join(out, ", ")
}
