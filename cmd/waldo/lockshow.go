package main

import (
	"context"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"waldo/internal/executor/serverpackage"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/executor/upstream/suspect"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
	"waldo/internal/protocol/strictjson"
)

// shownServer is one server as `waldo lock --show` prints it: the definitions that --accept would pin.
type shownServer struct {
	Server  string `json:"server"`
	Name    string `json:"name"`              // as the server calls itself
	Package string `json:"package,omitempty"` // name, version and the digest of all that is installed
	Started string `json:"started"`           // new, same or changed: how it is started
	Tools   []def  `json:"tools"`
	Prompts []def  `json:"prompts,omitempty"`
	// Templates of resources.
	Templates []def `json:"templates,omitempty"`
	// Gone are the names that were accepted and that the server no longer shows.
	Gone []string `json:"gone,omitempty"`
}

// def is one definition of a server.
type def struct {
	Name        string         `json:"name"`
	State       string         `json:"state"`  // new, same or changed
	Digest      string         `json:"digest"` // of the whole definition
	Description string         `json:"description"`
	Marks       []suspect.Mark `json:"marks,omitempty"` // texts that look like instructions to a model
}

// the states of a definition, against what was accepted.
const (
	isNew     = "new"
	isSame    = "same"
	isChanged = "changed"
)

// shownOf describes a server as it is now, against what was accepted of it.
func shownOf(name string, lock *lockfile.Lock, now lockfile.Locked) shownServer {
	was, known := lock.Servers[name]
	s := shownServer{Server: name, Name: now.Name, Started: stateOf(was.Command, now.Command, known)}
	if p := now.Package; p != nil {
		s.Package = strings.TrimSpace(p.Spec+" "+p.Version) + ", " + p.Lock.Digest()
	}
	s.Tools = defsOf(now.Tools, now.Definitions, was.Tools)
	s.Prompts = defsOf(now.Prompts.Digests, now.Prompts.Definitions, was.Prompts.Digests)
	s.Templates = defsOf(now.Templates.Digests, now.Templates.Definitions, was.Templates.Digests)
	for _, kind := range [][2]map[string]string{{was.Tools, now.Tools}, {was.Prompts.Digests, now.Prompts.Digests}, {was.Templates.Digests, now.Templates.Digests}} {
		for _, n := range slices.Sorted(maps.Keys(kind[0])) {
			if _, still := kind[1][n]; !still {
				s.Gone = append(s.Gone, n)
			}
		}
	}
	return s
}

func stateOf(was, now string, known bool) string {
	switch {
	case !known:
		return isNew
	case was == now:
		return isSame
	}
	return isChanged
}

func defsOf(digests map[string]string, definitions map[string]strictjson.Value, before map[string]string) []def {
	out := []def{}
	for _, name := range slices.Sorted(maps.Keys(digests)) {
		old, known := before[name]
		d := def{Name: name, Digest: digests[name], State: stateOf(old, digests[name], known), Marks: suspect.Definition(definitions[name])}
		if m, ok := definitions[name].Members(); ok {
			d.Description, _ = m["description"].Text()
		}
		out = append(out, d)
	}
	return out
}

// print shows the server to a person; brief: without what was accepted as it is.
func (s shownServer) print(w io.Writer, brief bool) {
	display.Fprintf(w, "server %s (%s), started: %s\n", s.Server, s.Name, s.Started)
	if s.Package != "" {
		display.Fprintf(w, "  package %s\n", s.Package)
	}
	same := 0
	for _, kind := range []struct {
		word string
		defs []def
	}{{"tool", s.Tools}, {"prompt", s.Prompts}, {"template", s.Templates}} {
		for _, d := range kind.defs {
			if brief && d.State == isSame {
				same++
				continue
			}
			display.Fprintf(w, "  %-8s %-7s %s  %s\n", kind.word, d.State, d.Name, short(d.Digest))
			if text := firstWords(d.Description); text != "" {
				display.Fprintf(w, "      %s\n", text)
			}
			for _, m := range d.Marks {
				display.Fprintf(w, "      look here: %s %s: %s\n", m.Where, m.Why, m.Text)
			}
		}
	}
	for _, name := range s.Gone {
		display.Fprintf(w, "  gone     %s\n", name)
	}
	if same > 0 {
		display.Fprintf(w, "  %s as accepted\n", display.Count(same, "definition"))
	}
}

// short is the beginning of a digest, enough to compare by eye.
func short(digest string) string { return digest[:min(len(digest), len("sha256:")+12)] }

// firstWords is the beginning of a description, on one line.
func firstWords(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > 100 {
		return string(r[:99]) + "…"
	}
	return text
}

// printLock shows servers to a person or a machine.
func (h *application) printLock(c *cobra.Command, g *global, names []string) error {
	all, err := h.showLock(c.Context(), names)
	if err != nil {
		return err
	}
	if g.json {
		return printJSON(c.OutOrStdout(), all)
	}
	for _, s := range all {
		s.print(c.OutOrStdout(), false)
	}
	display.Fprintf(c.ErrOrStderr(), "nothing was accepted; to accept: waldo lock --accept %s\n", strings.Join(names, " "))
	return nil
}

// showLock looks at servers, without accepting anything, and returns what accepting them would accept.
// A package that was never accepted is installed to look at it: sealed and without scripts, as accepting does.
func (h *application) showLock(ctx context.Context, names []string) ([]shownServer, error) {
	lock, err := lockfile.Read(h.lockFile())
	if err != nil {
		return nil, err
	}
	out := []shownServer{}
	bar := terminal.ProgressOf(os.Stderr, "looking at servers", len(names))
	defer bar.Close()
	for _, name := range names {
		done := bar.Begin(name)
		s, ok := h.cfg.Servers[name]
		if !ok {
			return nil, usage("waldo lock lists the servers", "there is no server %s", name)
		}
		w, packaged, err := serverpackage.Wanted(s)
		if err != nil {
			return nil, err
		}
		if pin := h.packages.Pin(name); packaged && (pin == nil || !pin.Is(w)) {
			if err := h.packages.Accept(ctx, s, w); err != nil {
				return nil, err
			}
		}
		now, err := h.upstreams.Seen(ctx, name)
		if err != nil {
			return nil, err
		}
		now.Package = h.packages.Pin(name)
		out = append(out, shownOf(name, lock, now))
		done()
	}
	return out, nil
}
