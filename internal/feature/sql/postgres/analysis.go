package postgres

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"waldo/internal/detect/pattern"
)

// analysis holds the names in the database's own analysis of a statement: the tree that debug_print_rewritten shows,
// with views and rules expanded.
type analysis struct {
	functions, operators, types map[uint32]bool // by oid
}

// commandSelect is CMD_SELECT of PostgreSQL's nodes.h. Every other number writes, or is a command that PostgreSQL does
// not analyse, such as SET, DO or COMMIT.
const commandSelect = "1"

// references are the labels of a tree that an oid follows: of a function, of an operator, of a type.
var references = struct{ functions, operators, types []string }{
	[]string{":funcid", ":opfuncid", ":aggfnoid", ":winfnoid", ":startInRangeFunc", ":endInRangeFunc"},
	[]string{":opno", ":opnos", ":eqop", ":sortop"},
	[]string{":resulttype", ":funcresulttype", ":funccoltypes", ":coltypes", ":consttype", ":paramtype"},
}

// readTree reads one rewritten tree. It returns an error unless every query of the tree is a SELECT without row locks.
// A name within a statement can add references to the result, never remove one: each label counts, wherever it stands.
func (a *analysis) readTree(tree string) error {
	words := nodeWords(tree)
	queries := 0
	for i, w := range words {
		next := ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		switch {
		case w == ":commandType":
			queries++
			if next != commandSelect {
				return refuse("statement", "only a query is run: SELECT, VALUES, TABLE or WITH, and EXPLAIN or SHOW")
			}
		case w == ":hasModifyingCTE" || w == ":hasForUpdate":
			if next != "false" {
				return refuse("statement", "the statement writes or locks rows")
			}
		}
	}
	if err := a.note(words); err != nil {
		return err
	}
	if queries == 0 {
		return refuse("unread", "the database's analysis of the statement cannot be read")
	}
	return nil
}

// note adds what the words of a tree refer to.
func (a *analysis) note(words []string) error {
	for i, w := range words {
		var to map[uint32]bool
		switch {
		case slices.Contains(references.functions, w):
			to = a.functions
		case slices.Contains(references.operators, w):
			to = a.operators
		case slices.Contains(references.types, w):
			to = a.types
		default:
			continue
		}
		next := ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		list := next == "o" || next == "<>" && strings.HasSuffix(w, "coltypes") // a list of oids is written (o 23 25)
		for n := i + 1; n < len(words); n++ {
			if list && n == i+1 {
				continue
			}
			oid, err := strconv.ParseUint(words[n], 10, 32)
			if list && err != nil {
				break
			}
			if err != nil {
				return refuse("unread", "the database's analysis of the statement cannot be read")
			}
			if oid != 0 {
				to[uint32(oid)] = true
			}
			if !list {
				break
			}
		}
		if next == "" {
			return refuse("unread", "the database's analysis of the statement cannot be read")
		}
	}
	return nil
}

// nodeWords splits a tree as PostgreSQL's read.c does: at blanks, parentheses and braces, where a backslash makes the
// next character ordinary. Quotes have no meaning: a blank inside a name has a backslash before it.
func nodeWords(tree string) []string {
	var out []string
	begin := -1
	end := func(i int) {
		if begin >= 0 {
			out = append(out, tree[begin:i])
		}
		begin = -1
	}
	for i := 0; i < len(tree); i++ {
		switch tree[i] {
		case ' ', '\n', '\t', '(', ')', '{', '}':
			end(i)
			continue
		case '\\':
			if begin < 0 {
				begin = i
			}
			i++
			continue
		}
		if begin < 0 {
			begin = i
		}
	}
	end(len(tree))
	return out
}

// prepared is a statement that the database has analysed and waldo has judged.
type prepared struct{ *pgconn.StatementDescription }

// statementName is the prepared statement's name within a session.
const statementName = "waldo"

// prepare lets the database analyse one statement, and judges it. The statement does not run.
func (s *session) prepare(ctx context.Context, query string) (*prepared, error) {
	if _, err := s.rows(ctx, "SET LOCAL client_min_messages = log; SET LOCAL debug_pretty_print = off; "+
		"SET LOCAL debug_print_rewritten = on"); err != nil {
		return nil, err
	}
	s.notices.take()
	described, err := s.Prepare(ctx, statementName, query, nil)
	if err != nil {
		return nil, err
	}
	trees := s.notices.take()
	if _, err := s.rows(ctx, "SET LOCAL debug_print_rewritten = off; SET LOCAL client_min_messages = warning"); err != nil {
		return nil, err
	}
	a := analysis{map[uint32]bool{}, map[uint32]bool{}, map[uint32]bool{}}
	read := 0
	for _, t := range trees {
		if !strings.HasPrefix(t, "(") {
			continue
		}
		if t == "()" || t == "(<>)" {
			return nil, refuse("statement", "the text holds no statement")
		}
		if err := a.readTree(t); err != nil {
			return nil, err
		}
		read++
	}
	if read == 0 {
		return nil, refuse("unread", "the database shows no analysis of the statement, so that nothing is known about its "+
			"functions")
	}
	if err := s.domains(ctx, &a); err != nil {
		return nil, err
	}
	return &prepared{described}, s.judge(ctx, a)
}

// domains adds what the conditions of domains refer to: a value that becomes one of a domain is checked by them.
func (s *session) domains(ctx context.Context, a *analysis) error {
	if len(a.types) == 0 {
		return nil
	}
	rows, err := s.rows(ctx, fmt.Sprintf(`WITH RECURSIVE part(oid) AS (
  SELECT oid FROM pg_type WHERE oid = ANY ('%s')
  UNION SELECT x.oid FROM part JOIN pg_type t ON t.oid = part.oid
    LEFT JOIN pg_attribute m ON m.attrelid = t.typrelid AND t.typtype = 'c' AND NOT m.attisdropped
    JOIN LATERAL (VALUES (t.typbasetype), (t.typelem), (m.atttypid)) x(oid) ON x.oid <> 0)
SELECT conbin::text FROM pg_constraint WHERE conbin IS NOT NULL AND contypid IN (SELECT oid FROM part)`, oids(a.types)))
	if err != nil {
		return err
	}
	for _, r := range rows {
		if err := a.note(nodeWords(r[0])); err != nil {
			return err
		}
	}
	return nil
}

// judge looks up the functions of an analysis and refuses those that can do more than compute and read.
func (s *session) judge(ctx context.Context, a analysis) error {
	if len(a.functions)+len(a.operators) == 0 {
		return nil
	}
	rows, err := s.rows(ctx, fmt.Sprintf(`SELECT p.oid::regprocedure, n.nspname, p.proname, p.provolatile, p.prosecdef,
  coalesce(e.extname, '')
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
  LEFT JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
  LEFT JOIN pg_extension e ON e.oid = d.refobjid
WHERE p.oid = ANY ('%[1]s') OR p.oid IN (SELECT oprcode FROM pg_operator WHERE oid = ANY ('%[2]s'))
  OR p.oid IN (SELECT unnest(ARRAY[aggtransfn, aggfinalfn, aggcombinefn, aggserialfn, aggdeserialfn, aggmtransfn,
    aggminvtransfn, aggmfinalfn]::oid[]) FROM pg_aggregate WHERE aggfnoid::oid = ANY ('%[1]s')) ORDER BY 1`,
		oids(a.functions), oids(a.operators)))
	if err != nil {
		return err
	}
	for _, r := range rows {
		f := function{signature: r[0], schema: r[1], name: r[2], volatile: r[3] != "i" && r[3] != "s",
			definer: r[4] != "f", extension: r[5]}
		if why := f.refusal(); why != "" {
			return refuse("function", "the function %s is refused: %s", f.signature, why)
		}
	}
	return nil
}

// oids writes oids as an array of SQL.
func oids(m map[uint32]bool) string {
	var out []string
	for _, o := range slices.Sorted(maps.Keys(m)) {
		out = append(out, strconv.FormatUint(uint64(o), 10))
	}
	return "{" + strings.Join(out, ",") + "}"
}

// function is one that a statement calls, as the database knows it.
type function struct {
	signature, schema, name, extension string
	volatile, definer                  bool
}

// refusal says why a statement that calls the function is not run; "": it is.
func (f function) refusal() string {
	name := f.schema + "." + f.name
	if f.extension != "" && f.extension != "plpgsql" {
		name = f.extension + "/" + f.name
	}
	listed, known := functions[name]
	switch {
	case f.definer:
		return "it is SECURITY DEFINER, so that it acts with the rights of its owner"
	case known && !listed:
		return "it runs SQL from a text, or takes a transaction id"
	case known:
		return ""
	case !f.volatile:
		return ""
	case f.schema == "pg_catalog":
		return "it can do more than compute or read"
	}
	return "it is VOLATILE, so that PostgreSQL expects it to write; the operator declares it STABLE if it only reads"
}

//go:embed functions.txt
var functionsText string

// functions are the exceptions to the rule that a volatile function is refused: true runs, false does not.
var functions = readFunctions(functionsText)

func readFunctions(text string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(text) {
		if sign, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok && sign != "#" {
			out[name] = sign == "+"
		}
	}
	return out
}

// explainPrefix is EXPLAIN with options that do not run the statement. ANALYZE is not among them.
var explainPrefix = pattern.Lazy(`(?is)^\s*EXPLAIN\s+(?:(VERBOSE)\s+|\(\s*((?:(?:VERBOSE|COSTS|SETTINGS|SUMMARY)` +
	`(?:\s+(?:ON|OFF|TRUE|FALSE))?|FORMAT\s+(?:TEXT|JSON|XML|YAML))(?:\s*,\s*(?:(?:VERBOSE|COSTS|SETTINGS|SUMMARY)` +
	`(?:\s+(?:ON|OFF|TRUE|FALSE))?|FORMAT\s+(?:TEXT|JSON|XML|YAML)))*)\s*\)\s*)?`)

// showCommand is SHOW of one parameter.
var showCommand = pattern.Lazy(`(?is)^\s*SHOW\s+([a-z_][a-z0-9_.]*)\s*;?\s*$`)

// command splits off an EXPLAIN that runs nothing, and rewrites SHOW as a query. PostgreSQL does not analyse these two.
// All else passes unchanged, and the database says what it is. The rest of an EXPLAIN is analysed by itself.
func command(query string) (explain, rest string) {
	if m := showCommand().FindStringSubmatch(query); m != nil && !strings.EqualFold(m[1], "all") {
		return "", "SELECT pg_catalog.current_setting('" + strings.ToLower(m[1]) + "') AS \"" + strings.ToLower(m[1]) + `"`
	}
	m := explainPrefix().FindStringSubmatch(query)
	if m == nil {
		return "", query
	}
	options := m[1] + m[2]
	if options != "" {
		options = " (" + options + ")"
	}
	return "EXPLAIN" + options + " ", query[len(m[0]):]
}
