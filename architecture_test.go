// Package waldo_test keeps ARCHITECTURE.md true: which layer imports which, how large a package,
// file or function may grow, and that every dependency has its reason.
package waldo_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
)

const module = "waldo/"

// every layer may be imported by the application.
var every = []string{
	"frontend", "core", "executor", "sandbox", "network", "storage", "agenthosts", "pkginstall", "model", "detect",
	"protocol", "config", "codegen",
}

// layers says for each folder of internal which other layers its packages may import. Packages of one layer may import
// each other. A folder that is not listed fails the test.
var layers = map[string][]string{
	// joins the others; only cmd/waldo imports it
	"app": every,
	// where calls come from
	"frontend": {"model", "protocol"},
	// the call pipeline
	"core": {"model", "protocol", "detect", "storage"},
	// carries out one granted call
	"executor":   {"model", "protocol", "core", "network", "sandbox", "storage", "pkginstall", "detect"},
	"sandbox":    {"model"},                       // makes sandboxes
	"network":    {"model", "protocol", "detect"}, // egress, MCP over HTTP, OAuth
	"storage":    {"model"},                       // things that outlive a process
	"agenthosts": {"config", "model", "detect"},   // waldo import and waldo install
	"pkginstall": {"protocol"},                    // packages of MCP servers
	"config":     {"model", "detect"},             // reads waldo.yaml
	"model":      {"protocol", "detect"},          // values, no I/O
	"detect":     nil,                             // the forms of secrets and personal data
	"protocol":   nil,                             // JSON, JSON-RPC, JSON Schema
	"codegen":    {"model", "protocol"},           // code for the tools of a server; no I/O
	"demo":       {"protocol"},                    // the server of waldo demo
}

// narrower lists the only packages of a layer that another layer can import.
var narrower = map[string]map[string][]string{
	"executor": {"core": {"core/grant", "core/policy"}}, // only a grant crosses from core to an executor
	"sandbox":  {"model": {"model/facts", "model/id"}},  // no contract, no call
	"network":  {"model": {"model/facts", "model/secret", "model/hostrule", "model/chat"}},
	"storage":  {"model": {"model/facts", "model/secret", "model/id"}},
	"model":    {"protocol": {"protocol/strictjson"}},
	"core":     {"storage": {"storage/database", "storage/safefile"}},
}

// exceptions are single imports that the layers do not allow, and the reason for each.
var exceptions = map[string]string{
	"network/egress -> sandbox":    "an egress is what a sandbox's profile names as its network",
	"storage/sandboxes -> sandbox": "a named sandbox is kept as the limits and facts of sandboxes",
	"cmd/waldo-gvisor -> sandbox":  "the gVisor executable is the driver's other half",
}

// anywhere lists folders whose packages, and those below, can import every package: commands wire the layers, and tests
// and tools are outside of them.
var anywhere = []string{"cmd/waldo", "attack", "tools/mutants", "tools/mcpbench", "internal/sandbox/sandboxtest"}

// The caps, in lines, and the exceptions with their reasons.
const (
	maxFile    = 700
	maxFunc    = 100
	maxPackage = 3000
)

// larger are packages with a cap of their own, in lines.
var larger = map[string]int{
	"cmd/waldo": 4500, // every command of waldo: flags, printing and help alone
}

var excused = map[string]string{}

// only says which external package may be imported by which packages alone.
var only = map[string][]string{
	"github.com/modelcontextprotocol/go-sdk": {"internal/frontend/mcpserver", "internal/executor/upstream",
		"internal/demo/helpdesk", "tools/mcpbench"},
	"github.com/go-jose/go-jose":                      {"internal/frontend/mcpserver/identity", "internal/network/oauth"},
	"golang.org/x/oauth2":                             {"internal/network/oauth", "internal/frontend/console/oidclogin"},
	"github.com/go-webauthn/webauthn":                 {"internal/core/approval/passkey"},
	"modernc.org/sqlite":                              {"internal/storage/database", "internal/executor/sql/sqlite"},
	"github.com/jackc/pgx/v5":                         {"internal/network/egress/postgres", "internal/executor/sql", "internal/executor/sql/postgres"},
	"github.com/schollz/progressbar":                  {"internal/frontend/terminal"},
	"github.com/JohannesKaufmann/html-to-markdown/v2": {"internal/executor/fetch"},
	"github.com/temoto/robotstxt":                     {"internal/executor/fetch"},
	"github.com/spf13/cobra": {
		"cmd/waldo", "cmd/waldo/agenthost", "cmd/waldo/completing", "cmd/waldo/generating", "cmd/waldo/manual",
		"cmd/waldo/sandboxflags", "cmd/waldo/consoling", "cmd/waldo/databases", "cmd/waldo/enrolling", "cmd/waldo/templates",
		"cmd/waldo/hooking", "cmd/waldo/measuring",
		"cmd/waldo/agenting", "cmd/waldo/doctoring",
	},
	"github.com/spf13/pflag":                 {"cmd/waldo", "cmd/waldo/manual"},
	"github.com/google/go-containerregistry": {"internal/sandbox/template"},
	"github.com/klauspost/compress":          {"internal/sandbox/template", "internal/sandbox/engine/program"},
	"github.com/tetratelabs/wazero":          {"internal/sandbox/engine/quickjs", "internal/sandbox/engine/cpython"},
	"github.com/evanw/esbuild":               {"internal/sandbox/engine/program"},
	"github.com/google/cel-go":               {"internal/core/policy"},
	"github.com/tailscale/hujson":            {"internal/agenthosts"},
	"github.com/pelletier/go-toml/v2":        {"internal/agenthosts"},
	"gvisor.dev/gvisor":                      {"cmd/waldo-gvisor"},
	"filippo.io/age": {"internal/storage/secretsource", "internal/storage/secretstore",
		"internal/core/approval"},
	"github.com/zalando/go-keyring":          {"internal/storage/secretsource"},
	"github.com/opencontainers/runtime-spec": {"cmd/waldo-gvisor"},
}

type source struct {
	path, dir string
	file      *ast.File
	lines     int
}

func sources(t *testing.T, fset *token.FileSet) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" ||
			d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, p, b, parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, source{
			path: p, dir: filepath.ToSlash(filepath.Dir(p)), file: f, lines: strings.Count(string(b), "\n"),
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 10 {
		t.Fatalf("only %d files found: the plan is being checked in the wrong place", len(out))
	}
	return out
}

// layer is the first folder of a package under internal.
func layer(pkg string) string {
	first, _, _ := strings.Cut(pkg, "/")
	return first
}

// allowed reports whether a package may import another; both without "internal/".
func allowed(from, to string) bool {
	for except := range exceptions {
		one, other, _ := strings.Cut(except, " -> ")
		if (from == one || strings.HasPrefix(from, one+"/")) && (to == other || strings.HasPrefix(to, other+"/")) {
			return true
		}
	}
	a, b := layer(from), layer(to)
	if a == b {
		return true
	}
	if only := narrower[a][b]; only != nil && !slices.Contains(only, to) {
		return false
	}
	return slices.Contains(layers[a], b)
}

func TestLayers(t *testing.T) {
	built := map[string]bool{}
	for _, s := range sources(t, token.NewFileSet()) {
		from := strings.TrimPrefix(s.dir, "internal/")
		if from != s.dir {
			built[layer(from)] = true
			if _, ok := layers[layer(from)]; !ok {
				t.Errorf("%s: no layer is called %s", s.path, layer(from))
			}
		}
		if slices.ContainsFunc(anywhere, func(dir string) bool { return s.dir == dir || strings.HasPrefix(s.dir, dir+"/") }) {
			continue
		}
		for _, imp := range s.file.Imports {
			to, ours := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module)
			if ours && !allowed(from, strings.TrimPrefix(to, "internal/")) {
				t.Errorf("%s imports %s, which the layers do not allow", s.path, to)
			}
		}
	}
	for name := range layers {
		if !built[name] {
			t.Errorf("the layer %s has no package", name)
		}
	}
	for from, to := range map[string]string{
		"sandbox/pool": "model/contract", "network/egress": "core/policy", "executor/runner": "core/broker",
		"frontend/bridge": "executor/runner", "core/broker": "executor/runner", "executor/launch": "app/trust",
		"core/policy": "config", "model/contract": "config",
	} {
		if allowed(from, to) {
			t.Errorf("control: %s may import %s", from, to)
		}
	}
}

// maxPairs bounds the pairs of a file of cmd/waldo and a package of sandbox, network or storage that it imports.
// Commands are flags and printing: what joins these layers belongs into internal/app.
const maxPairs = 20

func TestCommandsReachDownSeldom(t *testing.T) {
	var pairs []string
	for _, s := range sources(t, token.NewFileSet()) {
		if s.dir != "cmd/waldo" && !strings.HasPrefix(s.dir, "cmd/waldo/") {
			continue
		}
		for _, imp := range s.file.Imports {
			to, ours := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module+"internal/")
			if ours && slices.Contains([]string{"sandbox", "network", "storage"}, layer(to)) {
				pairs = append(pairs, s.path+" -> "+to)
			}
		}
	}
	if len(pairs) > maxPairs || len(pairs) == 0 { // 0: the test looks in the wrong place
		t.Errorf("%d imports of sandbox, network and storage in cmd/waldo, more than %d:\n%s", len(pairs), maxPairs,
			strings.Join(pairs, "\n"))
	}
	t.Logf("%d of at most %d", len(pairs), maxPairs)
}

func TestExternalPackages(t *testing.T) {
	for _, s := range sources(t, token.NewFileSet()) {
		for _, imp := range s.file.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			for prefix, users := range only {
				if (path == prefix || strings.HasPrefix(path, prefix+"/")) && !slices.Contains(users, s.dir) {
					t.Errorf("%s imports %s, which belongs to %v alone", s.path, path, users)
				}
			}
		}
	}
}

func TestSizes(t *testing.T) {
	fset := token.NewFileSet()
	size := map[string]int{}
	for _, s := range sources(t, fset) {
		size[s.dir] += s.lines
		if s.lines > maxFile && excused[s.path] == "" {
			t.Errorf("%s has %d lines, more than %d", s.path, s.lines, maxFile)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := fset.Position(f.End()).Line - fset.Position(f.Pos()).Line + 1
			if n > maxFunc && excused[s.path+":"+f.Name.Name] == "" {
				t.Errorf("%s: func %s has %d lines, more than %d", s.path, f.Name.Name, n, maxFunc)
			}
		}
	}
	for dir, n := range size {
		if most := max(maxPackage, larger[dir]); n > most && excused[dir] == "" {
			t.Errorf("package %s has %d lines, more than %d", dir, n, most)
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	said, seen := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t, token.NewFileSet()) {
		seen[s.dir] = true
		if s.file.Doc != nil {
			said[s.dir] = true
		}
	}
	for dir := range seen {
		if !said[dir] {
			t.Errorf("package %s has no doc comment", dir)
		}
	}
}

func TestNoInitFunctions(t *testing.T) {
	for _, s := range sources(t, token.NewFileSet()) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s registers itself in init(): main lists the packages instead", s.path)
			}
		}
	}
}

// TestDependencies holds go.mod's direct requirements against deps.txt: each has a line saying why.
func TestDependencies(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("deps.txt")
	if err != nil {
		t.Fatal(err)
	}
	why := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" || strings.HasPrefix(name, "#") {
			continue
		}
		why[name] = strings.TrimSpace(reason)
	}
	var direct []string
	for line := range strings.Lines(string(mod)) {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(f) == 2 && strings.Contains(f[0], ".") && strings.HasPrefix(f[1], "v") {
			direct = append(direct, f[0])
		}
	}
	sort.Strings(direct)
	for _, d := range direct {
		if len(why[d]) < 10 {
			t.Errorf("%s is required in go.mod and deps.txt does not say why", d)
		}
		delete(why, d)
	}
	for name := range why {
		t.Errorf("deps.txt speaks of %s, which go.mod does not require directly", name)
	}
}

// TestArchitecturePage: the table of layers in ARCHITECTURE.md has each layer, with the layers that it imports.
func TestArchitecturePage(t *testing.T) {
	page, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+)` \\|.*\\| ([^|]*) \\|$").FindAllStringSubmatch(string(page), -1) {
		rows[m[1]] = m[2]
	}
	for layer, imports := range layers {
		has, ok := rows[layer]
		if !ok {
			t.Errorf("ARCHITECTURE.md has no row for the layer %s", layer)
		}
		for _, other := range imports {
			if layer != "app" && !strings.Contains(has, other) {
				t.Errorf("ARCHITECTURE.md: the row of %s does not name %s among its imports", layer, other)
			}
		}
	}
}
