package postgres

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Finding is one privilege with which a role can do more than read.
type Finding struct {
	Privilege string `json:"privilege"` // INSERT, SUPERUSER, membership, ownership
	On        string `json:"on"`        // table app.orders
	Through   string `json:"through"`   // the role that has it, or PUBLIC
	Fix       string `json:"fix"`       // the statement that takes it away
}

// String returns the finding for a person: INSERT on table app.orders (through PUBLIC).
func (f Finding) String() string {
	return fmt.Sprintf("%s on %s (through %s)", f.Privilege, f.On, f.Through)
}

// Proof is the result of examining a role.
type Proof struct {
	Role     string    `json:"role"`
	Database string    `json:"database"`
	Server   string    `json:"server"` // its version
	Findings []Finding `json:"findings"`
}

// Hint says what to do about one finding. The privileges of a superuser and of an owner stay: others need that role.
func (p Proof) Hint(f Finding) string {
	for _, other := range p.Findings {
		if other.Privilege == "SUPERUSER" || other.Privilege == "ownership" {
			return "use another role in url: waldo sql bootstrap makes one that can only read"
		}
	}
	return f.Fix
}

// Refusal says why the role is not used; nil: it can only read.
func (p Proof) Refusal() *Error {
	if len(p.Findings) == 0 {
		return nil
	}
	first := make([]string, 0, 3)
	for _, f := range p.Findings[:min(len(p.Findings), 3)] {
		first = append(first, f.String())
	}
	more := ""
	if n := len(p.Findings) - len(first); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return refuse("role", "the database role %s can do more than read: %s%s. The operator sees them all, with the remedy, "+
		"in waldo check", p.Role, strings.Join(first, "; "), more)
}

// Prove examines the role of a URL.
func Prove(ctx context.Context, c *pgconn.Config) (Proof, error) {
	s, err := open(ctx, c, time.Minute)
	if err != nil {
		return Proof{}, err
	}
	defer s.end()
	return s.prove(ctx, "session_user")
}

//go:embed proof.sql
var proofSQL string

// prove examines a role: an expression of SQL, session_user or a quoted text. The session's user can return to its own
// privileges, so these count, and not those of a role that its options have set.
func (s *session) prove(ctx context.Context, role string) (Proof, error) {
	who, err := s.rows(ctx, "SELECT rolname, current_database(), current_setting('server_version'), oid, "+
		"current_setting('server_version_num') FROM pg_catalog.pg_roles WHERE rolname = "+role)
	if err != nil {
		return Proof{}, err
	}
	if len(who) != 1 || len(who[0]) != 5 {
		return Proof{}, refuse("unproven", "the database does not say which role this is")
	}
	p := Proof{Role: who[0][0], Database: who[0][1], Server: who[0][2], Findings: []Finding{}}
	var checks []string
	for check := range strings.SplitSeq(proofSQL, "-- check:") {
		title, query, _ := strings.Cut(check, "\n")
		if _, since, ok := strings.Cut(title, " since "); !strings.HasPrefix(title, "--") && (!ok || who[0][4] >= since) {
			checks = append(checks, strings.ReplaceAll(query, "$role", who[0][3]))
		}
	}
	results, err := s.Exec(ctx, strings.Join(checks, "")).ReadAll()
	if err != nil {
		return p, err
	}
	if len(results) != len(checks) {
		return p, refuse("unproven", "the database answers %d of %d questions about its privileges", len(results), len(checks))
	}
	for _, r := range results {
		for _, f := range r.Rows {
			p.Findings = append(p.Findings, Finding{string(f[0]), string(f[1]), string(f[2]), string(f[3])})
		}
		if len(p.Findings) > 0 && p.Findings[0].Privilege == "SUPERUSER" {
			break // a superuser has every other one
		}
	}
	return p, nil
}
