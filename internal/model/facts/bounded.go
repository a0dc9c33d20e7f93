package facts

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// Bounds of one list of facts. Code in a sandbox chooses how long the lists and their texts would be.
const (
	MaxList     = 200      // entries
	MaxText     = 2 << 10  // bytes of one text
	MaxTexts    = 16 << 10 // bytes of the texts of one list
	MaxPackages = 1000
)

// Bounded returns the facts with each list within its bounds. Cut names the lists that were longer.
// Stdout and stderr have bounds of their own.
func (f Facts) Bounded() Facts {
	f.Cut = slices.Clone(f.Cut)
	for _, l := range []struct {
		name string
		list *[]string
	}{
		{"files.read", &f.Files.Read}, {"files.written", &f.Files.Written}, {"files.artifacts", &f.Files.Artifacts},
		{"network.allowed_hosts", &f.Network.AllowedHosts}, {"network.contacted", &f.Network.Contacted},
		{"network.denied", &f.Network.Denied}, {"denials_seen", &f.Seen}, {"warnings", &f.Warnings},
	} {
		*l.list = within(&f, l.name, MaxList, *l.list, func(s *string) []*string { return []*string{s} })
	}
	f.Files.Held = within(&f, "files.held", MaxList, f.Files.Held, func(s *string) []*string { return []*string{s} })
	if f.Files.Changes != nil {
		c := *f.Files.Changes
		for _, list := range []*[]string{&c.Written, &c.Renamed, &c.Removed, &c.Protected} {
			*list = within(&f, "files.changes", MaxList, *list, func(s *string) []*string { return []*string{s} })
		}
		f.Files.Changes = &c
	}
	f.Denials = within(&f, "denials", MaxList, f.Denials, func(d *Denial) []*string {
		return []*string{&d.Kind, &d.What, &d.Errno}
	})
	f.Network.Attempts = within(&f, "network.attempts", MaxList, f.Network.Attempts, func(a *Attempt) []*string {
		return []*string{&a.Host, &a.Why}
	})
	f.Network.Packages = within(&f, "network.packages", MaxPackages, f.Network.Packages, func(p *Package) []*string {
		return []*string{&p.Manager, &p.Name, &p.Version}
	})
	return f
}

// within returns as much of a list as fits, and notes in f where it is not all. The list itself stays as it is.
func within[T any](f *Facts, name string, most int, list []T, texts func(*T) []*string) []T {
	left := MaxTexts
	if most == MaxPackages {
		left = 4 * MaxTexts
	}
	whole := true
	for i := range list {
		for _, s := range texts(&list[i]) {
			whole = whole && len(*s) <= MaxText
			left -= min(len(*s), MaxText)
		}
		if i >= most || left < 0 {
			if !slices.Contains(f.Cut, name) {
				f.Cut = append(f.Cut, name)
			}
			list = list[:i:i]
			break
		}
	}
	if whole {
		return list
	}
	list = slices.Clone(list)
	for i := range list {
		for _, s := range texts(&list[i]) {
			*s = Short(*s)
		}
	}
	return list
}

// Short returns the size and SHA-256 of a text that is longer than MaxText, in its place. It shows no part of the text:
// a secret that the cut divides would not be found.
func Short(s string) string {
	if len(s) <= MaxText {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return fmt.Sprintf("… (%d bytes, sha256 %s)", len(s), hex.EncodeToString(sum[:]))
}
