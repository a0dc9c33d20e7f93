package postgres

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Step is one part of making a role that can only read.
type Step struct {
	Why string // for a person
	SQL string
}

// Reader describes the role that Steps makes.
type Reader struct {
	Role     string
	Schemas  []string // it reads every table of these, present and future
	Password string   // empty: the role's password stays as it is
}

// quoted writes a name as an identifier of SQL.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// literal writes a text as a constant of SQL, for servers with standard_conforming_strings.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// Steps returns the statements that make the role. Applied again, they change nothing.
func (r Reader) Steps() ([]Step, error) {
	if r.Role == "" || len(r.Role) > 63 || strings.HasPrefix(r.Role, "pg_") || strings.ContainsAny(r.Role+strings.Join(r.Schemas, ""), "\x00$") {
		return nil, errors.New("the name of a role or of a schema must have 1 to 63 bytes, no $ and no pg_ before it")
	}
	role := quoted(r.Role)
	steps := []Step{
		{"make the role, if it is not there", fmt.Sprintf("DO $do$ BEGIN\n  IF NOT EXISTS (SELECT FROM pg_roles WHERE "+
			"rolname = %s) THEN\n    CREATE ROLE %s LOGIN;\n  END IF;\nEND $do$", literal(r.Role), role)},
		{"take from it the attributes that only administrators need", fmt.Sprintf("DO $do$ DECLARE a text; BEGIN\n"+
			"  FOR a IN SELECT v.name FROM pg_roles r, LATERAL (VALUES ('SUPERUSER', rolsuper), ('CREATEDB', rolcreatedb),\n"+
			"    ('CREATEROLE', rolcreaterole), ('REPLICATION', rolreplication), ('BYPASSRLS', rolbypassrls)) v(name, has)\n"+
			"    WHERE r.rolname = %s AND v.has\n  LOOP EXECUTE 'ALTER ROLE %s NO' || a; END LOOP;\nEND $do$",
			literal(r.Role), strings.ReplaceAll(role, "'", "''"))},
		{"let its sessions begin read-only and end by themselves", fmt.Sprintf(
			"ALTER ROLE %s SET default_transaction_read_only = on;\nALTER ROLE %s SET statement_timeout = '5min';\n"+
				"ALTER ROLE %s SET idle_in_transaction_session_timeout = '10min'", role, role, role)},
	}
	if r.Password != "" {
		v, err := verifier(r.Password)
		if err != nil {
			return nil, err
		}
		steps = append(steps, Step{"set its password; the server gets only the SCRAM verifier",
			"ALTER ROLE " + role + " PASSWORD " + literal(v)})
	}
	for _, name := range r.Schemas {
		schema := quoted(name)
		steps = append(steps, Step{"let it read schema " + name + ", and nothing else there", fmt.Sprintf(
			"REVOKE ALL ON SCHEMA %[1]s FROM %[2]s;\nREVOKE ALL ON ALL TABLES IN SCHEMA %[1]s FROM %[2]s;\n"+
				"REVOKE ALL ON ALL SEQUENCES IN SCHEMA %[1]s FROM %[2]s;\nREVOKE ALL ON ALL ROUTINES IN SCHEMA %[1]s FROM %[2]s;\n"+
				"GRANT USAGE ON SCHEMA %[1]s TO %[2]s;\nGRANT SELECT ON ALL TABLES IN SCHEMA %[1]s TO %[2]s", schema, role)},
			Step{"leave out its foreign tables: they reach beyond this database", fmt.Sprintf(
				"DO $do$ DECLARE t regclass; BEGIN\n  FOR t IN SELECT c.oid FROM pg_class c JOIN pg_namespace n ON "+
					"n.oid = c.relnamespace\n    WHERE n.nspname = %s AND c.relkind = 'f'\n"+
					"  LOOP EXECUTE format('REVOKE ALL ON %%s FROM %s', t); END LOOP;\nEND $do$", literal(name),
				strings.NewReplacer("'", "''", "%", "%%").Replace(role))},
			Step{"let it read the tables that this user makes there later", fmt.Sprintf(
				"ALTER DEFAULT PRIVILEGES IN SCHEMA %s GRANT SELECT ON TABLES TO %s", schema, role)})
	}
	return steps, nil
}

// verifier returns the SCRAM-SHA-256 verifier of a password, as PostgreSQL stores it (RFC 5803, RFC 7677). A password
// must be printable ASCII, which needs no normalisation.
func verifier(password string) (string, error) {
	if strings.ContainsFunc(password, func(c rune) bool { return c < ' ' || c > '~' }) || len(password) < 12 {
		return "", errors.New("the role's password must have at least 12 printable ASCII characters")
	}
	const rounds = 4096
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails (crypto/rand)
	salted, err := pbkdf2.Key(sha256.New, password, salt, rounds, sha256.Size)
	if err != nil {
		return "", err
	}
	mac := func(text string) []byte {
		h := hmac.New(sha256.New, salted)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	stored := sha256.Sum256(mac("Client Key"))
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", rounds, b64(salt), b64(stored[:]), b64(mac("Server Key"))), nil
}

// Apply runs the steps in one transaction, as the administrator of a URL, and examines the role. With public it then
// takes from PUBLIC what the examination found there, and examines the role again.
func Apply(ctx context.Context, c *pgconn.Config, r Reader, public bool, did func(Step)) (Proof, error) {
	steps, err := r.Steps()
	if err != nil {
		return Proof{}, err
	}
	conn, err := pgconn.ConnectConfig(ctx, c)
	if err != nil {
		return Proof{}, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = conn.Close(ctx) // an open transaction is rolled back
	}()
	s := &session{PgConn: conn, notices: &notices{}}
	run := func(steps []Step) error {
		for _, step := range steps {
			if _, err := s.rows(ctx, step.SQL); err != nil {
				return fmt.Errorf("%s: %w", step.Why, err)
			}
			did(step)
		}
		return nil
	}
	const begin = "BEGIN; SET LOCAL lock_timeout = '5s'; SET LOCAL standard_conforming_strings = on"
	if _, err = s.rows(ctx, begin); err != nil {
		return Proof{}, err
	}
	if err := run(steps); err != nil {
		return Proof{}, err
	}
	p, err := s.prove(ctx, literal(r.Role))
	if err == nil && public {
		var further []Step
		for _, f := range p.Findings {
			if f.Through == "PUBLIC" {
				further = append(further, Step{"take from every role: " + f.Privilege + " on " + f.On, f.Fix})
			}
		}
		if err = run(further); err == nil {
			p, err = s.prove(ctx, literal(r.Role))
		}
	}
	if err != nil {
		return p, err
	}
	_, err = s.rows(ctx, "COMMIT")
	return p, err
}
