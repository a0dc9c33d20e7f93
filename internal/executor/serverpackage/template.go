package serverpackage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"waldo/internal/model/contract"
	"waldo/internal/pkginstall"
)

// sandboxPythons are the interpreters of sandboxes that have this machine's /usr, most wanted first. Tests replace
// them.
var sandboxPythons = []string{"/usr/bin/python3", "/usr/local/bin/python3"}

// ForTemplate returns the installer for a template's packages: for the Python that sandboxes have, and with npm if
// node is true.
func (p *Packages) ForTemplate(ctx context.Context, name string, python, node bool) (*pkginstall.Installer, error) {
	i := &pkginstall.Installer{
		Dir: filepath.Join(p.State, "packages"), Config: p.npmConfig,
		Run: func(ctx context.Context, j pkginstall.Job) error {
			return p.runJob(ctx, contract.Server{Name: "template " + name}, j)
		},
	}
	var err error
	if python {
		if i.Python, err = p.sandboxPython(ctx); err != nil {
			return nil, err
		}
	}
	if node {
		i.Npm = make([]string, 2)
		for n, program := range []string{"node", "npm"} {
			if i.Npm[n], err = tool(program); err != nil {
				return nil, err
			}
		}
	}
	return i, nil
}

// sandboxPython finds a Python with pip of the version that sandboxes have: wheels with native code are for one
// version. The interpreter of sandboxes itself can lack pip.
func (p *Packages) sandboxPython(ctx context.Context) (pkginstall.Python, error) {
	for _, exe := range sandboxPythons {
		if _, err := os.Stat(exe); err != nil {
			continue
		}
		is, err := p.ask(ctx, exe)
		if err != nil {
			return pkginstall.Python{}, err
		}
		if is.Pip {
			return p.pythonOf(is)
		}
		py, err := p.python(ctx, is.Version)
		if err != nil {
			return py, fmt.Errorf("%s is Python %s, without pip: %w", exe, is.Version, err)
		}
		return py, nil
	}
	return pkginstall.Python{}, errors.New("sandboxes have no Python here: neither of " +
		strings.Join(sandboxPythons, ", ") + " exists (Debian: apt install python3 python3-pip)")
}
