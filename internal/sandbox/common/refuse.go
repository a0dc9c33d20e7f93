//go:build linux

package common

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
)

// Validate says why no driver that shows the host's /usr and bounded volumes can hold to the profile. Nil: one
// can.
func Validate(p sandbox.Profile) error {
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
	if err := p.Network.Refuse(); err != nil {
		return err
	}
	if err := ValidateTemplate(p.Template); err != nil {
		return err
	}
	for _, m := range p.Mounts {
		if err := refuseWritable(m); err != nil {
			return err
		}
		if !strings.HasPrefix(m.Source, "/") {
			return fmt.Errorf("mount %s: the source %q is not absolute", m.Target, m.Source)
		}
		if isRoot(m.Source) {
			return fmt.Errorf("mount %s: it would show the sandbox every file of this machine; name a folder", m.Target)
		}
		if err := refuseTarget(m.Target); err != nil {
			return err
		}
	}
	for _, t := range p.Tmpfs {
		if t.Bytes <= 0 || t.Inodes <= 0 {
			return fmt.Errorf("tmpfs %s: bytes and inodes must be above zero", t.Target)
		}
		if err := refuseTarget(t.Target); err != nil {
			return err
		}
	}
	return nil
}

// refuseWritable keeps what this machine runs from being changed, and sealed paths within their mount.
func refuseWritable(m sandbox.Mount) error {
	if !m.Writable {
		if len(m.Sealed) > 0 {
			return fmt.Errorf("mount %s: sealed paths of a read-only mount", m.Target)
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
	return nil
}

// ValidateWritable is for a driver whose sandboxes write to no folder of the host.
func ValidateWritable(p sandbox.Profile) error {
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

// ValidateHosts is for a driver whose sandboxes have no egress.
func ValidateHosts(n sandbox.Network) error {
	if len(n.Hosts) > 0 || len(n.Ports) > 0 {
		return fmt.Errorf("hosts %q: no sandbox of this driver can reach hosts; isolation namespace and gvisor can", n.Hosts)
	}
	return nil
}

// refuseTarget keeps mounts off what the sandbox itself is made of.
func refuseTarget(target string) error {
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

// ValidateCommand returns an error for a command that the kernel could not take unchanged.
func ValidateCommand(c sandbox.Command) error {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return fmt.Errorf("no command to run")
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

// RefuseShare refuses to share processes and ports, for drivers that cannot.
func RefuseShare(p sandbox.Profile) error {
	if p.Share != nil {
		return errors.New("commands of this isolation level share no processes or ports")
	}
	return nil
}

// NotRun returns one line that says why a command was not run. The command's name is quoted where it holds what a
// terminal would obey: an agent chose it.
func NotRun(err error) string {
	var at *os.PathError
	if errors.As(err, &at) {
		return "waldo: " + at.Op + " " + facts.Name(at.Path) + ": " + at.Err.Error() + "\n"
	}
	return "waldo: " + facts.Name(err.Error()) + "\n"
}
