package serverpackage

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"waldo/internal/executor/registry"
	"waldo/internal/network/egress/packages"
	"waldo/internal/pkginstall"
)

// askPython prints which interpreter this is behind environments and links, and the default index of its pip.
const askPython = `import json, sys
out = {"exe": getattr(sys, "_base_executable", "") or sys.executable, "prefix": sys.base_prefix, "version": "%d.%d" % sys.version_info[:2]}
try:
    from pip._internal.models.index import PyPI
    out.update(pip=True, index=PyPI.simple_url, files=PyPI.file_storage_domain)
except ImportError: pass
print(json.dumps(out))`

// python finds the Python of this machine, or of one version, and the index of its packages.
func (p *Packages) python(ctx context.Context, version string) (pkginstall.Python, error) {
	name := "python3"
	if version != "" {
		name = "python" + version
	}
	exe, err := exec.LookPath(name)
	if err != nil {
		return pkginstall.Python{}, fmt.Errorf("%s is not on this machine, and the package needs it", name)
	}
	var is interpreter
	for range 3 { // an environment's Python names the one it was made from
		if is, err = p.ask(ctx, exe); err != nil {
			return pkginstall.Python{}, err
		}
		if is.Exe == exe {
			break
		}
		exe = is.Exe
	}
	if !is.Pip {
		return pkginstall.Python{},
			fmt.Errorf("%s has no pip, which fetches the package (into a sandbox, not into this Python): install it (Debian: "+
				"apt install python3-pip; otherwise %s -m ensurepip)", exe, exe)
	}
	is.Exe = exe
	return p.pythonOf(is)
}

// pythonOf returns an interpreter that has pip, and the index of its packages.
func (p *Packages) pythonOf(is interpreter) (pkginstall.Python, error) {
	exe := is.Exe
	py := pkginstall.Python{Exe: exe, Prefix: filepath.Clean(is.Prefix), Version: is.Version, Index: pythonIndex()}
	if py.Index == "" {
		py.Index = is.Index
	}
	if a, err := url.Parse(py.Index); err == nil {
		if b, err := url.Parse(is.Index); err == nil && a.Host == b.Host {
			py.Files = is.Files
		}
	}
	if strings.HasPrefix(py.Prefix+"/", "/usr/") { // every sandbox has it
		py.Prefix = ""
	} else if strings.HasPrefix(p.State+"/", strings.TrimSuffix(py.Prefix, "/")+"/") {
		return pkginstall.Python{},
			fmt.Errorf("%s lives in %s, which holds waldo's own files: it is not shown to a sandbox; install a Python in a "+
				"folder of its own", exe, py.Prefix)
	}
	return py, nil
}

// interpreter is the answer of askPython.
type interpreter struct {
	Exe, Prefix, Version, Index, Files string
	Pip                                bool
}

func (p *Packages) ask(ctx context.Context, exe string) (is interpreter, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, exe, "-I", "-c", askPython)
	c.Dir = p.State
	out, err := c.Output()
	if err == nil {
		err = json.Unmarshal(out, &is)
	}
	if err != nil || !filepath.IsAbs(is.Exe) {
		return is, fmt.Errorf("%s does not answer as Python 3 does: %w", exe, err)
	}
	return is, nil
}

// pythonIndex returns this machine's index setting for uv or pip; "" if unset.
func pythonIndex() string {
	for _, name := range []string{"UV_DEFAULT_INDEX", "UV_INDEX_URL"} {
		v := os.Getenv(name)
		if label, address, ok := strings.Cut(v, "="); ok && !strings.Contains(label, ":") { // uv takes NAME=URL
			v = address
		}
		if v != "" {
			return v
		}
	}
	return registry.Machine(packages.PyPI)
}
