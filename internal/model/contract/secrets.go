package contract

import (
	"slices"
	"strings"

	"waldo/internal/model/secret"
)

// Secret is one entry of secrets: a name, and its source in this environment.
type Secret struct {
	Name  string
	At    Position
	Trust string                // of its command: Uncovered, or empty
	Spec  secret.Spec           // zero: it has no place in this environment
	In    map[string]secret.Ref // environment to place, where it was written so
	// Inject says to which requests the egress adds it; nil: to none.
	Inject *Inject
	// Tenants can use it; empty: those of the capabilities that name it.
	Tenants []string `json:",omitempty"`
}

// SecretUse is one place of the file that wants a secret.
type SecretUse struct {
	Ref secret.Ref
	At  Position
	By  string // "server github", "capability run_python"
}

// Inject selects the requests of a sandbox to which egress adds a secret. The sandbox holds a placeholder.
type Inject struct {
	Host            string   // a name
	Port            int      // never 0
	Methods, Paths  []string // never empty but with postgres
	As              string   // bearer, basic, header, query, sigv4 or postgres
	Name            string   // of the header or the parameter
	User, Database  string   // of basic and postgres
	Plain           bool     // with postgres: the server need not speak TLS
	Key, Token      secret.Ref
	Region, Service string
	Placeholder     string `json:"-"` // of a shape that the program accepts, of this session alone; empty: one is made
	Renew, Renewed  string `json:"-"` // a line of egress that waldo answers itself, and the answer in JSON; empty: none
}

// Placeholders returns the variables that hold a placeholder in the sandbox: all but the revealed ones.
func (c Contract) Placeholders() (out []string) {
	for v := range c.Secrets {
		if !slices.Contains(c.Reveal, v) {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
}

// SQLiteFile returns the path in the url of an sql tool that names an SQLite file; false: it names a secret.
func SQLiteFile(database string) (string, bool) { return strings.CutPrefix(database, "sqlite:") }
