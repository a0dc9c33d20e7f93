package launch

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/storage/safefile"
)

// home is the folder that a host has as its own, for one project. It outlives the session.
type home struct {
	dir    string            // on this machine
	person string            // the home of the person
	words  map[string]string // what stands for {word} in seeds, as JSON would write it
}

// keptHome makes the home of a host for one project, in waldo's state.
func keptHome(state, host, project string) (string, error) {
	sum := sha256.Sum256([]byte(project))
	dir := filepath.Join(state, "launch", hex.EncodeToString(sum[:8])+"-"+host, "home")
	return dir, os.MkdirAll(dir, 0o700)
}

// fill replaces words in a text.
func (h home) fill(text string) string {
	var pairs []string
	for w, v := range h.words {
		b, _ := json.Marshal(v) // a string
		pairs = append(pairs, "{"+w+"}", string(b[1:len(b)-1]))
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// seed writes the files of the profile into a home. The session before may have left links: nothing is written through
// one.
func (h home) seed(p Profile) error {
	root, err := os.OpenRoot(h.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range slices.Sorted(maps.Keys(p.Seed)) {
		text, err := h.seeded(root, name, p.Seed[name])
		if err != nil {
			return fmt.Errorf("%s in the home of %s: %w", name, p.Title, err)
		}
		if err := write(root, name, text); err != nil {
			return fmt.Errorf("%s in the home of %s: %w", name, p.Title, err)
		}
	}
	for _, name := range p.Copy {
		if err := h.copy(root, name); err != nil {
			return fmt.Errorf("copying ~/%s: %w", name, err)
		}
	}
	return nil
}

// write replaces a file below a home.
func write(root *os.Root, name string, text []byte) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	if err := root.RemoveAll(name); err != nil {
		return err
	}
	return root.WriteFile(name, text, 0o600)
}

// seeded returns the text of one seeded file.
func (h home) seeded(root *os.Root, name string, s Seed) ([]byte, error) {
	if s.Text != "" {
		return []byte(strings.Replace(h.fill(s.Text), "{kept}", h.lines(s), 1)), nil
	}
	was := map[string]any{}
	if b, err := safefile.ReadIn(root, name, maxSettings); err == nil {
		_ = json.Unmarshal(b, &was) // what the host broke starts anew
	}
	for _, k := range s.Drop {
		delete(was, k)
	}
	for k, v := range h.kept(s) {
		was[k] = v
	}
	var ours map[string]any
	if err := json.Unmarshal([]byte(h.fill(s.Merge)), &ours); err != nil {
		return nil, err
	}
	merge(was, ours)
	return json.MarshalIndent(was, "", "  ")
}

// merge puts the members of from into to, object by object.
func merge(to, from map[string]any) {
	for k, v := range from {
		below, ours := v.(map[string]any)
		old, theirs := to[k].(map[string]any)
		if ours && theirs {
			merge(old, below)
			continue
		}
		to[k] = v
	}
}

// maxSettings bounds a file of the person's settings, and what is copied of one host.
const maxSettings = 4 << 20

// person reads a file of the person's home.
func (h home) read(name string) ([]byte, error) {
	at := filepath.Join(h.person, name)
	st, err := os.Stat(at)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxSettings {
		return nil, errors.New("not a file of settings")
	}
	return os.ReadFile(at)
}

// hasServers reports whether a file of the person names MCP servers.
func (h home) hasServers(name string) bool {
	b, err := h.read(name)
	if err != nil {
		return false
	}
	if strings.HasSuffix(name, ".toml") {
		return strings.Contains(string(b), "[mcp_servers.")
	}
	var all map[string]any
	if json.Unmarshal(b, &all) != nil {
		return false
	}
	for _, key := range []string{"mcpServers", "mcp"} {
		if servers, _ := all[key].(map[string]any); len(servers) > 0 {
			return true
		}
	}
	return false
}

// kept returns the settings of the person that go along: the named keys, and no other.
func (h home) kept(s Seed) map[string]any {
	out := map[string]any{}
	if s.From == "" {
		return out
	}
	var all map[string]any
	if b, err := h.read(s.From); err != nil || json.Unmarshal(b, &all) != nil {
		return out
	}
	for _, k := range s.Keep {
		if v, ok := all[k]; ok {
			out[k] = v
		}
	}
	return out
}

// lines returns the lines of a TOML file, before its first table, that set one of the kept keys to a string, a number
// or a truth value.
func (h home) lines(s Seed) string {
	b, err := h.read(cmp.Or(s.From, "."))
	if err != nil {
		return ""
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			break
		}
		k, v, ok := strings.Cut(line, "=")
		if v = strings.TrimSpace(v); ok && slices.Contains(s.Keep, strings.TrimSpace(k)) && plain(v) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// plain reports whether a TOML value is complete on its line.
func plain(v string) bool {
	if strings.HasPrefix(v, `"`) {
		return len(v) > 1 && strings.Count(v, `"`) == 2 && strings.HasSuffix(v, `"`) && !strings.Contains(v, `\`)
	}
	return v != "" && !strings.ContainsAny(v, `"'[{`)
}

// copy replaces a file or folder of a home by the person's. Links and programs stay behind.
func (h home) copy(root *os.Root, name string) error {
	if err := root.RemoveAll(name); err != nil {
		return err
	}
	from := filepath.Join(h.person, name)
	left := maxSettings
	return filepath.WalkDir(from, func(at string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		below, err := filepath.Rel(h.person, at)
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil || info.Mode()&0o111 != 0 {
			return err
		}
		if left -= int(info.Size()); left < 0 {
			return fmt.Errorf("more than %d MB", maxSettings>>20)
		}
		text, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		return write(root, below, text)
	})
}
