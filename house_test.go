// Package waldo_test holds the plan of the house as a test: which room may import which, how
// large a room may grow, and that every dependency has its reason.
package waldo_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
)

const module = "waldo/"

// values are the ground floor: data that every room may speak in.
var values = []string{"internal/id", "internal/wire", "internal/call", "internal/facts", "internal/contract", "internal/secret", "internal/display"}

// plan says, room by room, which rooms it may import. A room that is not listed fails the test.
var plan = map[string][]string{
	// values know nobody but smaller values
	"internal/id":       nil,
	"internal/wire":     nil,
	"internal/facts":    nil,
	"internal/display":  nil, // text as a person may see it
	"internal/secret":   nil,
	"internal/contract": {"internal/display", "internal/hostrule", "internal/secret"},
	"internal/call":     {"internal/facts", "internal/wire"},

	// the study decides; it touches no box and no server
	"internal/policy":            values,
	"internal/approval":          with(values, "internal/policy", "internal/store"),
	"internal/grant":             with(values, "internal/policy", "internal/approval"),
	"internal/audit/headfile":    {"internal/store"},
	"internal/audit":             with(values, "internal/policy", "internal/approval", "internal/store"),
	"internal/redact":            with(values, "internal/policy", "internal/scrub", "internal/redact/checkdigit", "internal/redact/makes", "internal/redact/words"),
	"internal/redact/checkdigit": nil,
	"internal/redact/makes":      nil,
	"internal/redact/words":      nil,
	"internal/session":           with(values, "internal/policy"),

	// the corridor
	"internal/broker": with(values, "internal/policy", "internal/approval", "internal/grant"),

	// the doors parse, limit and bind to a session; they know no worker
	"internal/catalogue":        with(values, "internal/schema"),
	"internal/gateway":          with(values, "internal/catalogue", "internal/jsonrpc", "internal/schema"),
	"internal/gateway/web":      with(values, "internal/gateway", "internal/jsonrpc"), // the same door over HTTP
	"internal/gateway/identity": with(values, "internal/gateway/web"),                 // who a request comes from
	"internal/bridge":           with(values, "internal/jsonrpc"),

	// the workers redeem a grant and act
	"internal/upstream":         with(values, "internal/grant", "internal/policy", "internal/install", "internal/jsonrpc", "internal/remote", "internal/upstream/bounds", "internal/upstream/diff", "internal/upstream/outside"),
	"internal/upstream/suspect": {"internal/wire"},     // texts of definitions that try to instruct a model
	"internal/upstream/files":   {"internal/contract"}, // which files of this machine a server's sandbox is shown
	"internal/runner":           with(values, "internal/egress", "internal/grant", "internal/policy", "internal/sandbox", "internal/template", "internal/workspace", "internal/guest"),

	// machinery knows no contract, no policy and no MCP
	"internal/jsonrpc":          {"internal/wire"},                                                             // newline-delimited JSON-RPC, for whoever speaks it
	"internal/oauth":            {"internal/wire"},                                                             // tokens for servers, from those who issue them
	"internal/remote":           {"internal/egress", "internal/hostrule", "internal/jsonrpc", "internal/wire"}, // JSON-RPC over HTTP, the client's side
	"internal/upstream/bounds":  nil,                                                                           // what a server sends, held within bounds
	"internal/upstream/diff":    {"internal/wire"},                                                             // how one definition differs from another
	"internal/upstream/outside": nil,                                                                           // programs outside any box, and their end
	"internal/schema":           {"internal/wire"},                                                             // JSON Schema within a budget
	"internal/secret/source":    {"internal/secret"},                                                           // fetches secrets from where the operator keeps them
	"internal/secret/safe":      {"internal/secret", "internal/secret/source"},                                 // waldo's own store of secrets, sealed
	"internal/store":            nil,
	"internal/template":         nil,                                                                         // root filesystems, unpacked once and kept by digest
	"internal/lifecycle":        {"internal/id", "internal/sandbox", "internal/store", "internal/workspace"}, // named sandboxes and their snapshots
	"internal/workspace":        {"internal/id"},
	// the way out of a box, by rules
	"internal/egress":            {"internal/facts", "internal/sandbox", "internal/secret", "internal/egress/authority", "internal/egress/packages", "internal/egress/postgres", "internal/egress/shelf", "internal/egress/sigv4", "internal/hostrule", "internal/scrub"},
	"internal/egress/authority":  nil,                 // who vouches, in one box, for the hosts that are looked into
	"internal/egress/packages":   nil,                 // what a request to a registry is for, and what a lock pins
	"internal/egress/postgres":   {"internal/secret"}, // the start-up of PostgreSQL with a password the box never has
	"internal/egress/shelf":      nil,                 // files of packages, kept between runs
	"internal/egress/sigv4":      nil,                 // requests signed as Amazon wants them
	"internal/hostrule":          nil,                 // the lines that say what a sandbox may reach
	"internal/scrub":             nil,                 // hides texts in streams, and tells by no size or time how near one is
	"internal/guest":             nil,
	"internal/install":           {"internal/wire"},                                                                // packages of servers, installed apart from being run
	"internal/hosts":             nil,                                                                              // the configuration files of agent hosts
	"internal/hosts/real":        nil,                                                                              // tests with real hosts and servers
	"internal/wellknown":         nil,                                                                              // a catalogue of well-known servers
	"internal/adopt":             {"internal/contract", "internal/hosts", "internal/secret", "internal/wellknown"}, // their servers, as lines of waldo.yaml
	"internal/sandbox":           {"internal/facts"},
	"internal/sandbox/seccomp":   nil,
	"internal/sandbox/landlock":  nil,
	"internal/sandbox/admission": nil, // how many sandboxes are live at a time
	"internal/sandbox/cgroup":    {"internal/sandbox"},
	"internal/sandbox/notice":    {"internal/facts", "internal/sandbox/seccomp"},
	"internal/sandbox/stage":     {"internal/sandbox/cgroup", "internal/sandbox/common", "internal/sandbox/machine"},
	"internal/sandbox/reach":     {"internal/sandbox/common", "internal/sandbox/machine", "internal/sandbox/stage"},
	"internal/sandbox/namespace": {"internal/facts", "internal/id", "internal/sandbox", "internal/sandbox/seccomp", "internal/sandbox/stage", "internal/sandbox/reach", "internal/sandbox/landlock", "internal/sandbox/cgroup", "internal/sandbox/common", "internal/sandbox/machine", "internal/sandbox/notice", "internal/sandbox/zygote"},
	"internal/sandbox/machine":   nil,                         // walks lists of system calls
	"internal/sandbox/zygote":    {"internal/sandbox/common"}, // interpreters that boxes are forked from

	"internal/sandbox/pool":       {"internal/sandbox"},
	"internal/sandbox/common":     {"internal/sandbox", "internal/facts", "internal/sandbox/landlock"},
	"internal/sandbox/confined":   {"internal/facts", "internal/sandbox", "internal/sandbox/common", "internal/sandbox/landlock", "internal/sandbox/seccomp"},
	"internal/sandbox/gvisor":     {"internal/facts", "internal/id", "internal/sandbox", "internal/sandbox/cgroup", "internal/sandbox/common", "internal/sandbox/gvisor/job"},
	"internal/sandbox/gvisor/job": nil,
	"cmd/waldo-gvisor":            {"internal/sandbox/common", "internal/sandbox/gvisor/job", "internal/sandbox/seccomp"},

	// the example that the demo talks to
	"internal/demo/helpdesk": {"internal/jsonrpc"},
}

// anywhere may import every room: main lists the rooms, and tests live outside the house.
var anywhere = []string{"cmd/waldo", "attack", "tools/mutants", "tools/mcpbench", "internal/sandbox/sandboxtest"}

func with(base []string, more ...string) []string { return append(slices.Clone(base), more...) }

// The caps, in lines, and who is excused from one, for what reason.
const (
	maxFile    = 700
	maxFunc    = 100
	maxPackage = 3000
)

var excused = map[string]string{
	"cmd/waldo":         "every command of waldo and the house that joins the rooms; a command holds flags and words, the work is in the rooms",
	"internal/contract": "the table of every key of waldo.yaml, which is data, and its one reader",
}

// only says which external package may be imported by which rooms alone.
var only = map[string][]string{
	"github.com/modelcontextprotocol/go-sdk": {"internal/gateway", "internal/upstream", "internal/demo/helpdesk"},
	"github.com/go-jose/go-jose":             {"internal/gateway/identity"},
	"modernc.org/sqlite":                     {"internal/store"},
	"github.com/jackc/pgx/v5":                {"internal/egress/postgres"},
	"github.com/schollz/progressbar":         {"cmd/waldo"},
	"github.com/spf13/cobra":                 {"cmd/waldo"},
	"github.com/spf13/pflag":                 {"cmd/waldo"},
	"github.com/google/go-containerregistry": {"internal/template"},
	"github.com/klauspost/compress":          {"internal/template"},
	"github.com/google/cel-go":               {"internal/contract", "internal/policy"},
	"github.com/tailscale/hujson":            {"internal/hosts"},
	"github.com/pelletier/go-toml/v2":        {"internal/hosts"},
	"gvisor.dev/gvisor":                      {"cmd/waldo-gvisor"},
	"filippo.io/age":                         {"internal/secret/source", "internal/secret/safe"},
	"github.com/zalando/go-keyring":          {"internal/secret/source"},
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
		if d.IsDir() && p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules") {
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
		out = append(out, source{path: p, dir: filepath.ToSlash(filepath.Dir(p)), file: f, lines: strings.Count(string(b), "\n")})
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

func TestPlan(t *testing.T) {
	built := map[string]bool{}
	defer func() {
		for room := range plan {
			if !built[room] {
				t.Errorf("the plan has a room that nobody built: %s", room)
			}
		}
	}()
	for _, s := range sources(t, token.NewFileSet()) {
		built[s.dir] = true
		if slices.Contains(anywhere, s.dir) {
			continue
		}
		allowed, ok := plan[s.dir]
		if !ok {
			t.Errorf("%s: the room %s is not in the plan", s.path, s.dir)
			continue
		}
		for _, imp := range s.file.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			if room, ours := strings.CutPrefix(path, module); ours && !slices.Contains(allowed, room) {
				t.Errorf("%s imports %s, which the plan does not allow %s", s.path, room, s.dir)
			}
		}
	}
}

func TestExternalPackagesStayInTheirRooms(t *testing.T) {
	for _, s := range sources(t, token.NewFileSet()) {
		for _, imp := range s.file.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			for prefix, rooms := range only {
				if (path == prefix || strings.HasPrefix(path, prefix+"/")) && !slices.Contains(rooms, s.dir) {
					t.Errorf("%s imports %s, which belongs to %v alone", s.path, path, rooms)
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
		if n > maxPackage && excused[dir] == "" {
			t.Errorf("package %s has %d lines, more than %d", dir, n, maxPackage)
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
				t.Errorf("%s registers itself in init(): main lists the rooms instead", s.path)
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
