package postgres

import (
	"errors"
	"strings"
	"testing"
)

const plainTree = `({QUERY :commandType 1 :utilityStmt <> :hasModifyingCTE false :hasForUpdate false :rtable ` +
	`({RANGETBLENTRY :alias {ALIAS :aliasname NAME :colnames <>}}) :targetList ({FUNCEXPR :funcid 2626 :args ` +
	`({OPEXPR :opno 96 :opfuncid 65})} {AGGREF :aggfnoid 2147} {WINDOWFUNC :winfnoid 3100})})`

func isRefusal(err error, code string) bool {
	e := (*Error)(nil)
	return errors.As(err, &e) && (e.Code == code || code == "")
}

func newAnalysis() analysis {
	return analysis{map[uint32]bool{}, map[uint32]bool{}, map[uint32]bool{}}
}

func TestReadTree(t *testing.T) {
	a := newAnalysis()
	if err := a.readTree(plainTree); err != nil {
		t.Fatal(err)
	}
	for _, oid := range []uint32{2626, 65, 2147, 3100} {
		if !a.functions[oid] {
			t.Errorf("the function %d is not found", oid)
		}
	}
	if !a.operators[96] || oids(a.functions) != "{65,2147,2626,3100}" {
		t.Error(a)
	}
	for why, row := range map[string]struct{ from, to, code string }{
		"a write":                    {"commandType 1", "commandType 4", "sql.statement"},
		"a command":                  {"commandType 1", "commandType 6", "sql.statement"},
		"a write within":             {":rtable", ":cteList ({QUERY :commandType 3}) :rtable", "sql.statement"},
		"a WITH that writes":         {"hasModifyingCTE false", "hasModifyingCTE true", "sql.statement"},
		"a lock of rows":             {"hasForUpdate false", "hasForUpdate true", "sql.statement"},
		"an oid that is no number":   {":funcid 2626", ":funcid <>", "sql.unread"},
		"no query":                   {":commandType", ":command", "sql.unread"},
		"an oid that does not end":   {":winfnoid 3100", ":winfnoid", "sql.unread"},
		"a name that looks as a key": {"NAME", ":funcid", "sql.unread"},
	} {
		b := newAnalysis()
		if err := b.readTree(strings.Replace(plainTree, row.from, row.to, 1)); !isRefusal(err, row.code) {
			t.Errorf("%s: %v", why, err)
		}
	}
}

func TestFunctions(t *testing.T) {
	for _, row := range []struct {
		f    function
		runs bool
	}{
		{function{schema: "pg_catalog", name: "lower"}, true},
		{function{schema: "pg_catalog", name: "random", volatile: true}, true},
		{function{schema: "pg_catalog", name: "pg_sleep", volatile: true}, false},
		{function{schema: "pg_catalog", name: "a_function_of_a_later_version", volatile: true}, false},
		{function{schema: "pg_catalog", name: "table_to_xml"}, false},
		{function{schema: "public", name: "random", volatile: true}, false},
		{function{schema: "public", name: "uuid_generate_v4", volatile: true, extension: "uuid-ossp"}, true},
		{function{schema: "public", name: "uuid_generate_v4", volatile: true}, false},
		{function{schema: "public", name: "crosstab", extension: "tablefunc"}, false},
		{function{schema: "app", name: "twice"}, true},
		{function{schema: "app", name: "twice", definer: true}, false},
		{function{schema: "pg_catalog", name: "random", volatile: true, definer: true}, false},
	} {
		if why := row.f.refusal(); (why == "") != row.runs {
			t.Errorf("%+v: %q", row.f, why)
		}
	}
	if len(functions) < 50 {
		t.Error("the table of functions is not read")
	}
}

func TestCommand(t *testing.T) {
	for query, want := range map[string][2]string{
		"SELECT 1":                          {"", "SELECT 1"},
		"explain select 1":                  {"EXPLAIN ", "select 1"},
		"EXPLAIN VERBOSE SELECT 1":          {"EXPLAIN (VERBOSE) ", "SELECT 1"},
		"EXPLAIN (FORMAT JSON) SELECT 1":    {"EXPLAIN (FORMAT JSON) ", "SELECT 1"},
		"EXPLAIN (SELECT 1)":                {"EXPLAIN ", "(SELECT 1)"},
		"EXPLAIN ANALYZE SELECT 1":          {"EXPLAIN ", "ANALYZE SELECT 1"},
		"EXPLAIN (ANALYZE) SELECT 1":        {"EXPLAIN ", "(ANALYZE) SELECT 1"},
		"EXPLAIN (ANALYZE true) SELECT 1":   {"EXPLAIN ", "(ANALYZE true) SELECT 1"},
		"EXPLAIN (COSTS, ANALYZE) SELECT 1": {"EXPLAIN ", "(COSTS, ANALYZE) SELECT 1"},
		"show search_path;":                 {"", `SELECT pg_catalog.current_setting('search_path') AS "search_path"`},
		"SHOW ALL":                          {"", "SHOW ALL"},
		"SHOW x'; DROP":                     {"", "SHOW x'; DROP"},
		"/**/EXPLAIN SELECT 1":              {"", "/**/EXPLAIN SELECT 1"},
	} {
		explain, rest := command(query)
		if explain != want[0] || rest != want[1] {
			t.Errorf("%s: %q %q", query, explain, rest)
		}
	}
}

// FuzzReadTree: no name inside a statement hides a function or a write.
func FuzzReadTree(f *testing.F) {
	f.Add("x")
	f.Add(":funcid")
	f.Add(`\ :commandType 1 (`)
	f.Fuzz(func(t *testing.T, name string) {
		// as outToken of PostgreSQL's outfuncs.c writes a name
		escaped := strings.NewReplacer("\\", "\\\\", " ", "\\ ", "\n", "\\\n", "\t", "\\\t", "(", "\\(", ")", "\\)",
			"{", "\\{", "}", "\\}").Replace(name)
		if escaped == "" {
			escaped = "<>"
		}
		a := newAnalysis()
		if err := a.readTree(strings.Replace(plainTree, "NAME", escaped, 1)); err == nil && (len(a.functions) != 4 || !a.functions[2626]) {
			t.Errorf("%q: %v", name, a.functions)
		}
		b := newAnalysis()
		write := strings.Replace(plainTree, ":targetList", ":cteList ({QUERY :commandType 4}) :targetList", 1)
		if err := b.readTree(strings.Replace(write, "NAME", escaped, 1)); err == nil {
			t.Errorf("%q hides a write", name)
		}
	})
}

// FuzzCommand: the text that runs is the text that was judged, and no option of waldo's runs it for ANALYZE.
func FuzzCommand(f *testing.F) {
	f.Add("EXPLAIN (FORMAT JSON, VERBOSE on) SELECT 1")
	f.Add("SHOW search_path")
	f.Add("explain analyze select 1")
	f.Fuzz(func(t *testing.T, query string) {
		explain, rest := command(query)
		if strings.Contains(strings.ToUpper(explain), "ANALY") {
			t.Errorf("%q: %q", query, explain)
		}
		shows := strings.HasPrefix(rest, "SELECT pg_catalog.current_setting('") && strings.Count(rest, "'") == 2 &&
			strings.Count(rest, `"`) == 2 && !strings.Contains(rest, ";")
		if !strings.HasSuffix(query, rest) && !shows {
			t.Errorf("%q becomes %q", query, rest)
		}
	})
}
