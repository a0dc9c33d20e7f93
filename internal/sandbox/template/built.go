package template

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"

	"waldo/internal/sandbox"
)

// Built is a template of packages that are shown beside this machine's /usr.
type Built struct {
	Name   string `json:"name"`
	Python string `json:"python,omitempty"` // the version that its wheels are for, as in 3.11
	Wheels int    `json:"wheels,omitempty"`
	Npm    int    `json:"npm,omitempty"` // packages of npm
}

// names are those of templates that were built. An image with a tag, or a path, cannot be one.
var names = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`) })

// CheckName refuses a name that a built template cannot have.
func CheckName(name string) error {
	if name == "host" || !names().MatchString(name) {
		return Unfit{fmt.Errorf("template name %.80q: want up to 63 small letters, digits, '-' and '_', and not host", name)}
	}
	if strings.HasPrefix(name, "p_") {
		return Unfit{fmt.Errorf("template name %.80q: p_… names snapshots", name)}
	}
	return nil
}

// builtRef is the reference that a built template's digest is stored under.
func builtRef(name string) string { return "built:" + name }

// Build stores a template of packages under a name: fill writes them below a folder, as python and node_modules. If a
// template of that digest exists, only the name is stored. A failure leaves no files.
func (s *Store) Build(ctx context.Context, digest string, b Built, fill func(dir string) error) (Template, error) {
	if err := CheckName(b.Name); err != nil {
		return Template{}, err
	}
	name := b.Name + "@" + digest
	t, ok := s.kept(name, digest)
	if !ok {
		var err error
		if t, err = s.keepBuilt(ctx, name, digest, b, fill); err != nil {
			return Template{}, err
		}
	}
	return t, s.note(builtRef(b.Name), digest)
}

func (s *Store) keepBuilt(ctx context.Context, name, digest string, b Built, fill func(dir string) error,
) (Template, error) {
	return s.keepMade(ctx, name, digest, func(root string) (Template, error) {
		out := Template{Built: &b}
		err := os.Mkdir(root, 0o755)
		if err != nil {
			return out, err
		}
		if err := fill(root); err != nil {
			return out, fmt.Errorf("template %s: %w", b.Name, err)
		}
		if out.Bytes, out.Entries, err = s.measure(root); err != nil {
			return out, fmt.Errorf("template %s: %w", b.Name, err)
		}
		if b.Python != "" {
			out.Config.Env = []string{"PYTHONPATH=" + sandbox.PythonAt} // for programs that waldo does not start itself
		}
		return out, nil
	})
}

// measure counts the bytes and files below a folder, and refuses more than the bounds.
func (s *Store) measure(dir string) (bytes int64, entries int, err error) {
	err = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entries++; entries > s.bounds.Entries {
			return ErrTooMuch
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		if bytes > s.bounds.Bytes {
			return ErrTooMuch
		}
		return nil
	})
	return bytes, entries, err
}

// builtNamed returns the template that was built under a name; ok is false if none was.
func (s *Store) builtNamed(name string) (t Template, ok bool, err error) {
	if CheckName(name) != nil {
		return t, false, nil
	}
	digest := s.noted(builtRef(name))
	if digest == "" {
		return t, false, nil
	}
	if t, ok = s.kept(name+"@"+digest, digest); !ok {
		return t, true, Unfit{fmt.Errorf("template %[1]s: its packages were removed; build it again: "+
			"waldo template build %[1]s", name)}
	}
	return t, true, t.fits()
}

// python3 is the interpreter of sandboxes that have this machine's /usr. Tests replace it.
var python3 = "/usr/bin/python3"

// fits refuses wheels for another Python than the one of sandboxes: native code is for one version alone.
func (t Template) fits() error {
	if t.Built == nil || t.Built.Python == "" || runtime.GOOS != "linux" {
		return nil
	}
	exe, err := filepath.EvalSymlinks(python3)
	if err != nil {
		return Unfit{fmt.Errorf("template %s has packages for Python %s, and this machine has no %s",
			t.Built.Name, t.Built.Python, python3)}
	}
	version, ok := strings.CutPrefix(filepath.Base(exe), "python")
	if ok && strings.Contains(version, ".") && version != t.Built.Python {
		return Unfit{fmt.Errorf("template %[1]s was built for Python %[2]s, and %[3]s is %[4]s now; build it again: "+
			"waldo template build %[1]s", t.Built.Name, t.Built.Python, python3, version)}
	}
	return nil
}
