package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Validate returns an error if no driver that shows the host's /usr and bounded volumes can hold to the profile.
func (p Profile) Validate() error {
	l := p.Limits
	for _, f := range []struct {
		name  string
		value int64
	}{{"wall", int64(l.Wall)}, {"CPU", int64(l.CPU)}, {"memory", l.Memory}, {"pids", l.Pids}, {"files", l.Files},
		{"disk", l.Disk}, {"inodes", l.Inodes}, {"output", l.Output}} {
		if f.value <= 0 {
			return fmt.Errorf("the profile has no limit of %s; every limit must be above zero", f.name)
		}
	}
	if err := p.Network.Validate(); err != nil {
		return err
	}
	if err := p.Template.Validate(); err != nil {
		return err
	}
	if err := p.Only.validate(); err != nil {
		return err
	}
	for _, m := range p.Mounts {
		if err := errors.Join(validateWritable(m), validateHidden(m)); err != nil {
			return err
		}
		if !strings.HasPrefix(m.Source, "/") {
			return fmt.Errorf("mount %s: the source %q is not absolute", m.Target, m.Source)
		}
		if isRoot(m.Source) {
			return fmt.Errorf("mount %s: it would show the sandbox every file of this machine; name a folder", m.Target)
		}
		if err := validateTarget(m.Target); err != nil {
			return err
		}
	}
	for _, t := range p.Tmpfs {
		if t.Bytes <= 0 || t.Inodes <= 0 {
			return fmt.Errorf("tmpfs %s: bytes and inodes must be above zero", t.Target)
		}
		if err := validateTarget(t.Target); err != nil {
			return err
		}
	}
	return nil
}

// maxOnly bounds the paths of Only: each is an open file while the sandbox is made.
const maxOnly = 500

func (o *Only) validate() error {
	if o == nil {
		return nil
	}
	all := slices.Concat(o.Execute, o.Read, o.Write)
	if len(all) > maxOnly {
		return fmt.Errorf("%d files that commands may use; at most %d", len(all), maxOnly)
	}
	for _, p := range all {
		if name := strings.TrimSuffix(p, "/"); !path.IsAbs(name) || path.Clean(name) != name || strings.ContainsRune(p, 0) {
			return fmt.Errorf("a file that commands may use, %q: want an absolute path in its shortest form", p)
		}
	}
	return nil
}

// NoOnly returns an error for a profile that narrows what commands may use. It is for drivers that cannot.
func NoOnly(p Profile) error {
	if p.Only == nil {
		return nil
	}
	return WithHint(ErrOnly, "isolation namespace can")
}

// ErrOnly is the error of a driver, or of a kernel, that cannot hold a profile's Only.
var ErrOnly = errors.New("what a program executes and opens cannot be narrowed here")

// validateWritable keeps what this machine runs from being changed, and sealed paths within their mount.
func validateWritable(m Mount) error {
	if !m.Writable {
		if len(m.Sealed) > 0 || m.Live || m.Aside != "" {
			return fmt.Errorf("mount %s: a read-only mount is not live, has no sealed paths, and no writes go aside", m.Target)
		}
		return nil
	}
	for _, own := range []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys",
		"/usr"} {
		if m.Source == own || strings.HasPrefix(m.Source, own+"/") {
			return fmt.Errorf("mount %s: %s of this machine cannot be writable", m.Target, own)
		}
	}
	for _, s := range m.Sealed {
		if s != path.Clean(s) || !filepath.IsLocal(s) || s == "." {
			return fmt.Errorf("mount %s: the sealed path %q does not lie below it", m.Target, s)
		}
	}
	for name, to := range m.Lent {
		if !slices.Contains(m.Sealed, name) || to != path.Clean(to) || !path.IsAbs(to) {
			return fmt.Errorf("mount %s: the lent path %q is not a sealed one with a place in the sandbox", m.Target, name)
		}
	}
	return nil
}

// validateHidden keeps hidden paths within their mount.
func validateHidden(m Mount) error {
	for _, h := range m.Hidden {
		name := strings.TrimSuffix(h, "/")
		if name != path.Clean(name) || !filepath.IsLocal(name) || name == "." {
			return fmt.Errorf("mount %s: the hidden path %q does not lie below it", m.Target, h)
		}
	}
	return nil
}

// NoHidden returns an error for a profile with a mount that hides files. It is for drivers that hide none.
func NoHidden(p Profile) error {
	for _, m := range p.Mounts {
		if len(m.Hidden) > 0 {
			return WithHint(fmt.Errorf("mount %s: this driver cannot hide %s, which can hold keys", m.Target, m.Hidden[0]),
				"isolation namespace can; or show a folder without such files")
		}
	}
	return nil
}

// NoWritable returns an error for a profile with a writable mount. It is for drivers that have none.
func NoWritable(p Profile) error {
	for _, m := range p.Mounts {
		if m.Writable {
			return fmt.Errorf("mount %s: this driver has no writable mounts; isolation namespace has", m.Target)
		}
	}
	return nil
}

// isRoot reports whether a folder is the root of this machine's files, under any name.
func isRoot(folder string) bool {
	root, err := os.Stat("/")
	if err != nil {
		return true
	}
	st, err := os.Stat(folder)
	return err == nil && os.SameFile(root, st)
}

// NoHosts returns an error for a network with hosts. It is for drivers without egress.
func NoHosts(n Network) error {
	if len(n.Hosts) > 0 || len(n.Ports) > 0 {
		return fmt.Errorf("hosts %q: no sandbox of this driver can reach hosts; isolation namespace and gvisor can", n.Hosts)
	}
	return nil
}

// validateTarget keeps mounts off what the sandbox itself is made of.
func validateTarget(target string) error {
	if target != path.Clean(target) || !strings.HasPrefix(target, "/") || target == "/" ||
		strings.ContainsRune(target, 0) {
		return fmt.Errorf("target %q: want an absolute path in its shortest form", target)
	}
	for _, own := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc", "/dev", "/proc",
		"/sys", "/old"} {
		if target == own || strings.HasPrefix(target, own+"/") {
			return fmt.Errorf("target %s: %s belongs to the sandbox", target, own)
		}
	}
	return nil
}

// maxText is how much of arguments and environment is passed on to the kernel, which takes 2 MiB.
const maxText = 4 << 20

// Validate returns an error for a command that the kernel could not take unchanged.
func (c Command) Validate() error {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return fmt.Errorf("no command to run")
	}
	if c.Direct != nil && (!c.Serve || c.Stdin != nil || c.Stdout != nil) {
		return errors.New("a command with Direct needs Serve, and neither Stdin nor Stdout")
	}
	if c.Dir != "" && !strings.HasPrefix(c.Dir, "/") {
		return fmt.Errorf("the working folder %q is not absolute", c.Dir)
	}
	total := 0
	for _, s := range slices.Concat(c.Argv, c.Env, []string{c.Dir}) {
		if total += len(s); total > maxText {
			return fmt.Errorf("more than %d bytes of arguments and environment", maxText)
		}
		if strings.ContainsRune(s, 0) {
			return fmt.Errorf("%.40q: arguments, environment and folders hold no NUL", s)
		}
	}
	return nil
}

// NoShare returns an error for a profile that shares processes and ports. It is for drivers that cannot.
func NoShare(p Profile) error {
	if p.Share != nil {
		return errors.New("commands of this isolation level share no processes or ports")
	}
	return nil
}

// NoTTY returns an error for a command with a terminal. It is for drivers that give none.
func NoTTY(c Command) error {
	if c.TTY != nil {
		return errors.New("this driver gives a command no terminal; isolation namespace does")
	}
	return nil
}

// Validate returns an error if no sandbox can start from the template: only "host" has neither a root nor packages.
func (t Template) Validate() error {
	switch {
	case t.Name == "":
		return fmt.Errorf("the profile names no template")
	case t.Packages != "" && (t.Name == "host" || t.Dir != ""):
		return fmt.Errorf("template %q: packages belong to a built template, which has no root of its own", t.Name)
	case (t.Name == "host") != (t.Dir == "" && t.Packages == ""):
		return fmt.Errorf("template %q in %q: \"host\" has no folder, and every other has one", t.Name, t.Dir)
	case t.Dir != "" && (!filepath.IsAbs(t.Dir) || filepath.Clean(t.Dir) != t.Dir || t.Dir == "/"):
		return fmt.Errorf("template folder %q: want an absolute path in its shortest form, and not /", t.Dir)
	}
	return nil
}
