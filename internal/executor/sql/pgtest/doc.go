// Package pgtest starts a PostgreSQL server of a test's own: Debian's programs, a fresh cluster in a temporary folder,
// and a port of loopback. Only tests import it.
package pgtest
