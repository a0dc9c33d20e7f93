package commands

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"

	"waldo/internal/model/call"
)

// folders are where a sandbox of the machine's own root finds programs, in this order.
var folders = []string{"/usr/local/bin", "/usr/bin", "/bin"}

// Folders returns them.
func Folders() []string { return folders }

// Program is a program of this machine, as it was when the configuration was loaded.
type Program struct {
	Path   string
	digest string // SHA-256 of the file behind Path and its links
}

// Programs are the programs that contracts allow, by name. One that is not on this machine is absent.
type Programs map[string]Program

// Find finds programs and their digests.
func Find(names []string) Programs {
	all := Programs{}
	for _, n := range names {
		for _, dir := range folders {
			p := filepath.Join(dir, n)
			if d, err := digest(p); err == nil && filepath.Base(n) == n {
				all[n] = Program{p, d}
				break
			}
		}
	}
	return all
}

// Check returns the path of a program. It refuses one that is absent, or that is not what it was.
func (all Programs) Check(name string) (string, *call.Reason) {
	p, ok := all[name]
	if !ok {
		return "", &call.Reason{Code: "program.absent", Text: "the program " + name + " is not under /usr of this machine"}
	}
	if now, err := digest(p.Path); err != nil || now != p.digest {
		return "", &call.Reason{Code: "program.changed", Text: "the program " + name + " has changed since the configuration " +
			"was loaded; the operator looks at it, then runs waldo reload"}
	}
	return p.Path, nil
}

// digest returns the SHA-256 of an executable file.
func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if i, err := f.Stat(); err != nil || !i.Mode().IsRegular() || i.Mode()&0o111 == 0 {
		return "", os.ErrNotExist
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
