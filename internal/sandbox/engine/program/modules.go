package program

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"sync"

	"waldo/internal/sandbox/guest"
)

// builtin are the modules that are part of the runtime, with the names that they export.
var builtin = map[string][]string{
	"waldo": {"servers", "search_tools", "searchTools", "workspace", "logger", "scrub", "run_async", "runAsync",
		"resultOf", "ToolError", "Denied", "Waiting"},
	"fs": {"readFileSync", "writeFileSync", "appendFileSync", "mkdirSync", "existsSync", "readdirSync",
		"unlinkSync"},
	"path": {"join", "resolve", "dirname", "basename", "extname", "relative", "normalize", "isAbsolute", "sep"},
	"util": {"inspect", "format", "promisify"},
}

// generated are the names of modules that waldo gen writes. Without such a file, calls of it go over the bridge.
var generated = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`/servers/([^/]+)/([^/]+?)(?:\.[jt]s)?$`)
})

// resolve returns the full name of a module: one of the runtime, or a path in the workspace.
func (p *program) resolve(from, name string) (string, error) {
	bare := strings.TrimPrefix(name, "node:")
	if bare == "mcp_codegen/runtime" {
		bare = "waldo"
	}
	switch _, own := builtin[bare]; {
	case own:
		return "waldo:" + bare, nil
	case name == p.job.Name && from == "<input>" || name == p.job.Name && p.module != "" && from == p.job.Name:
		return name, nil
	case name == p.job.Name:
		return name, nil
	case strings.HasPrefix(name, "./"), strings.HasPrefix(name, "../"), strings.HasPrefix(name, "/"):
		if !strings.HasPrefix(name, "/") {
			name = path.Join(path.Dir(path.Join("/workspace", from)), name)
		}
		return path.Clean(name), nil
	}
	//lint:ignore ST1005 the words are Node's
	return "", fmt.Errorf("Cannot find module '%s': the level engine has fs, path, util and waldo, and files of the workspace", name)
}

// load returns the source of a module.
func (p *program) load(full string) (string, error) {
	if own, ok := strings.CutPrefix(full, "waldo:"); ok {
		return p.own(own), nil
	}
	if full == p.job.Name && p.module != "" {
		return p.module, nil
	}
	tried := []string{full}
	if path.Ext(full) == "" {
		tried = append(tried, full+".ts", full+".js", full+".mjs", full+"/index.ts", full+"/index.js")
	} else if base, ok := strings.CutSuffix(full, ".js"); ok {
		tried = append(tried, base+".ts")
	}
	for _, name := range tried {
		if p.files.stat(name) != "file" {
			continue
		}
		b, err := p.files.read(name)
		if err != nil {
			return "", fmt.Errorf("%s: it cannot be read", full)
		}
		if len(b) > guest.MaxScript {
			return "", fmt.Errorf("%s has %d bytes: at most %d are loaded", full, len(b), guest.MaxScript)
		}
		switch path.Ext(name) {
		case ".json":
			return "export default " + string(b), nil
		case ".ts", ".mts", ".tsx":
			return strip(name, string(b))
		}
		return string(b), nil
	}
	if m := generated().FindStringSubmatch(full); m != nil {
		return fmt.Sprintf("export const { call } = globalThis[Symbol.for('waldo.modules')]('waldo').servers[%s][%s];\n"+
			"export const TOOL = %[2]s, SERVER_URL = %[3]s;\nexport default call;\n",
			quoted(m[1]), quoted(m[2]), quoted("waldo:"+m[1])), nil
	}
	//lint:ignore ST1005 the words are Node's
	return "", fmt.Errorf("Cannot find module '%s': only files of the workspace can be imported", full)
}

// own is the source of a module of the runtime.
func (p *program) own(name string) string {
	names := builtin[name]
	if name == "waldo" {
		names = append(names[:len(names):len(names)], p.servers...)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "const m = globalThis[Symbol.for('waldo.modules')](%s);\nexport default m.default || m;\n",
		quoted(name))
	for _, n := range names {
		fmt.Fprintf(&b, "export const %s = m.%s === undefined ? globalThis.%s : m.%s;\n", n, n, n, n)
	}
	return b.String()
}
