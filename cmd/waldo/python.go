package main

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

// askPython has an interpreter say which one it is behind environments and links, and what its pip takes
// for the index where nobody has set one.
const askPython = `import json, sys
out = {"exe": getattr(sys, "_base_executable", "") or sys.executable, "prefix": sys.base_prefix, "version": "%d.%d" % sys.version_info[:2]}
try:
    from pip._internal.models.index import PyPI
    out.update(pip=True, index=PyPI.simple_url, files=PyPI.file_storage_domain)
except ImportError: pass
print(json.dumps(out))`

// python finds the Python of this machine, of a version where one is named, and where its packages come from.
func (h *house) python(ctx context.Context, version string) (pkginstall.Python, error) {
	name := "python3"
	if version != "" {
		name = "python" + version
	}
	exe, err := exec.LookPath(name)
	if err != nil {
		return pkginstall.Python{}, fmt.Errorf("%s is not on this machine, and the package needs it", name)
	}
	var is interpreter
	for range 3 { // that of an environment names the one it was made of
		if is, err = h.ask(ctx, exe); err != nil {
			return pkginstall.Python{}, err
		}
		if is.Exe == exe {
			break
		}
		exe = is.Exe
	}
	if !is.Pip {
		return pkginstall.Python{}, fmt.Errorf("%s has no pip, which fetches the package (into a box, not into this Python): install it (Debian: apt install python3-pip; otherwise %s -m ensurepip)", exe, exe)
	}
	py := pkginstall.Python{Exe: exe, Prefix: filepath.Clean(is.Prefix), Version: is.Version, Index: pythonIndex()}
	if py.Index == "" {
		py.Index = is.Index
	}
	if a, err := url.Parse(py.Index); err == nil {
		if b, err := url.Parse(is.Index); err == nil && a.Host == b.Host {
			py.Files = is.Files
		}
	}
	if strings.HasPrefix(py.Prefix+"/", "/usr/") { // every box has it
		py.Prefix = ""
	} else if strings.HasPrefix(h.state+"/", strings.TrimSuffix(py.Prefix, "/")+"/") {
		return pkginstall.Python{}, fmt.Errorf("%s lives in %s, which holds waldo's own files: it is not shown to a box; install a Python in a folder of its own", exe, py.Prefix)
	}
	return py, nil
}

// interpreter is what a Python says of itself.
type interpreter struct {
	Exe, Prefix, Version, Index, Files string
	Pip                                bool
}

func (h *house) ask(ctx context.Context, exe string) (is interpreter, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, exe, "-I", "-c", askPython)
	c.Dir = h.state
	out, err := c.Output()
	if err == nil {
		err = json.Unmarshal(out, &is)
	}
	if err != nil || !filepath.IsAbs(is.Exe) {
		return is, fmt.Errorf("%s does not answer as Python 3 does: %w", exe, err)
	}
	return is, nil
}

// pythonIndex is the index that this machine is set to, for uv or for pip; "" where nothing says.
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
