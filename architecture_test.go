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
	"sync"
	"testing"
)

const module = "waldo/"

// every layer may be imported by the application.
var every = []string{
	"frontend", "core", "executor", "sandbox", "network", "storage", "pkginstall", "model", "detect",
	"protocol", "config", "budget",
}

// layers says for each folder of internal which other layers its packages may import. Packages of one layer may import
// each other. A folder that is not listed fails the test.
var layers = map[string][]string{
	// joins the others; only cmd/waldo imports it
	"app": every,
	// where calls come from
	"frontend": {"model", "protocol", "budget"},
	// the call pipeline
	"core": {"model", "protocol", "detect", "storage", "budget"},
	// carries out one granted call
	"executor":   {"model", "protocol", "core", "network", "sandbox", "storage", "pkginstall", "detect", "budget"},
	"sandbox":    {"model", "budget"},                      // makes sandboxes
	"network":    {"model", "protocol", "detect"},          // egress, MCP over HTTP, OAuth
	"storage":    {"model"},                                // things that outlive a process
	"pkginstall": {"protocol"},                             // packages of MCP servers
	"config":     {"model", "detect"},                      // reads waldo.yaml
	"model":      {"protocol", "detect"},                   // values, no I/O
	"detect":     nil,                                      // the forms of secrets and personal data
	"protocol":   {"budget"},                               // JSON, JSON-RPC, JSON Schema
	"budget":     nil,                                      // bounds with a share for each principal
	"demo":       {"protocol"},                             // the server of waldo demo
	"cli":        append([]string{"app"}, every...),        // shared by all commands
	"feature":    append([]string{"app", "cli"}, every...), // one folder for each thing that a user would name
	"testing":    nil,                                      // support of tests; no product package imports it
}

// narrower lists the only packages of a layer that another layer can import.
var narrower = map[string]map[string][]string{
	"executor": {"core": {"core/grant", "core/policy"}}, // only a grant crosses from core to an executor
	"sandbox":  {"model": {"model/facts", "model/id"}},  // no contract, no call
	"network":  {"model": {"model/facts", "model/secret", "model/hostrule"}},
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
var anywhere = []string{"cmd/waldo", "attack", "tools/mutants", "tools/mcpbench", "internal/testing"}

// maxFunc is the only cap on size, in lines: a file or a package is as long as its story.
const maxFunc = 100

// only lists for an external package the folders whose packages, and those below, can import it.
var only = map[string][]string{
	"github.com/modelcontextprotocol/go-sdk": {"internal/frontend/mcpserver", "internal/executor/upstream",
		"internal/demo/helpdesk", "tools/mcpbench"},
	"github.com/go-jose/go-jose":      {"internal/frontend/mcpserver/identity", "internal/network/oauth"},
	"golang.org/x/oauth2":             {"internal/network/oauth", "internal/feature/console/site/oidclogin"},
	"github.com/go-webauthn/webauthn": {"internal/core/approval/passkey"},
	"modernc.org/sqlite":              {"internal/storage/database", "internal/feature/sql/sqlite"},
	"github.com/jackc/pgx/v5": {"internal/network/egress/postgres", "internal/feature/sql", "internal/feature/sql/postgres",
		"internal/storage/database", "internal/feature/worker"},
	"github.com/riverqueue/river":                     {"internal/feature/worker"},
	"github.com/schollz/progressbar":                  {"internal/frontend/terminal"},
	"github.com/JohannesKaufmann/html-to-markdown/v2": {"internal/feature/fetch"},
	"github.com/temoto/robotstxt":                     {"internal/feature/fetch"},
	"github.com/spf13/cobra":                          {"cmd/waldo", "internal/cli", "internal/feature"},
	"github.com/spf13/pflag":                          {"cmd/waldo", "internal/cli"},
	"github.com/google/go-containerregistry":          {"internal/sandbox/template", "tools/release"},
	"github.com/klauspost/compress":                   {"internal/sandbox/template", "internal/sandbox/engine/program"},
	"github.com/tetratelabs/wazero":                   {"internal/sandbox/engine/quickjs", "internal/sandbox/engine/cpython"},
	"github.com/evanw/esbuild":                        {"internal/sandbox/engine/program"},
	"cel.dev/cel-go":                                  {"internal/core/policy"},
	"github.com/tailscale/hujson":                     {"internal/feature/hosts/agenthosts"},
	"github.com/pelletier/go-toml/v2":                 {"internal/feature/hosts/agenthosts"},
	"gvisor.dev/gvisor":                               {"cmd/waldo-gvisor"},
	"filippo.io/age": {"internal/storage/secretsource", "internal/storage/secretstore",
		"internal/core/approval", "internal/feature/backup"},
	"github.com/zalando/go-keyring":          {"internal/storage/secretsource"},
	"github.com/opencontainers/runtime-spec": {"cmd/waldo-gvisor"},
	"go.opentelemetry.io":                    {"internal/feature/telemetry"},
	"github.com/prometheus":                  {"internal/feature/telemetry"},
	// the templates of the standard library find methods by name: the linker then keeps every exported method
	"html/template": nil, "text/template": nil,
	"github.com/DataDog/datadog-agent/pkg/template": {"internal/feature/console/site"},
}

type source struct {
	path, dir string
	file      *ast.File
	lines     int
}

var (
	positions = token.NewFileSet()
	parsed    = sync.OnceValues(parseAll)
)

// sources are the files of the tree that are no tests.
func sources(t *testing.T) []source {
	t.Helper()
	out, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 10 {
		t.Fatalf("only %d files found: the plan is being checked in the wrong place", len(out))
	}
	return out
}

func parseAll() (out []source, err error) {
	err = filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
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
		f, err := parser.ParseFile(positions, p, b, parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, source{
			path: p, dir: filepath.ToSlash(filepath.Dir(p)), file: f, lines: strings.Count(string(b), "\n"),
		})
		return nil
	})
	return out, err
}

// layer is the first folder of a package under internal.
func layer(pkg string) string {
	first, _, _ := strings.Cut(pkg, "/")
	return first
}

// part returns a folder of the path of a package.
func part(pkg string, n int) string {
	if parts := strings.Split(pkg, "/"); n < len(parts) {
		return parts[n]
	}
	return ""
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
	if a == "feature" && b == "feature" { // of its own folder, and the seam
		return to == "feature" || part(from, 1) == part(to, 1)
	}
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
	for _, s := range sources(t) {
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
		"core/policy": "config", "model/contract": "config", "app": "feature/webhook", "feature/webhook": "feature/agent",
	} {
		if allowed(from, to) {
			t.Errorf("control: %s may import %s", from, to)
		}
	}
}

func TestExternalPackages(t *testing.T) {
	for _, s := range sources(t) {
		for _, imp := range s.file.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			for prefix, users := range only {
				if (path == prefix || strings.HasPrefix(path, prefix+"/")) &&
					!slices.ContainsFunc(users, func(u string) bool { return s.dir == u || strings.HasPrefix(s.dir, u+"/") }) {
					t.Errorf("%s imports %s, which belongs to %v alone", s.path, path, users)
				}
			}
		}
	}
}

func TestFunctionsAreShort(t *testing.T) {
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := positions.Position(f.End()).Line - positions.Position(f.Pos()).Line + 1; n > maxFunc {
				t.Errorf("%s: func %s has %d lines, more than %d", s.path, f.Name.Name, n, maxFunc)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	said, seen := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
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
	for _, s := range sources(t) {
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
	spoken := map[string]bool{}
	for _, d := range direct {
		name := d
		for why[name] == "" && strings.Contains(name, "/") { // the line of a project holds for its modules
			name = name[:strings.LastIndex(name, "/")]
		}
		if spoken[name] = true; len(why[name]) < 10 {
			t.Errorf("%s is required in go.mod and deps.txt does not say why", d)
		}
	}
	for name := range why {
		if spoken[name] {
			continue
		}
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
			if !slices.Contains([]string{"app", "cli", "feature"}, layer) && !strings.Contains(has, other) {
				t.Errorf("ARCHITECTURE.md: the row of %s does not name %s among its imports", layer, other)
			}
		}
	}
}
