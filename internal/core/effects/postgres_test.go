package effects

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"waldo/internal/core/policy"
	"waldo/internal/testing/pgtest"
)

// TestPostgres runs the tests of this package on PostgreSQL.
func TestPostgres(t *testing.T) { pgtest.Again(t, ".", "^$") }

// TestMarks: what another host can have written of a call is believed with the mark of the store's key alone, and a
// change of a forged row gives it none.
func TestMarks(t *testing.T) {
	b := newBench(t)
	if !b.Store.Shared() {
		t.Skip("the rows of one state directory have no marks")
	}
	for _, keyed := range []bool{false, true} {
		if keyed {
			b.Store.MarkWith(func() ([]byte, error) { return []byte("of all hosts"), nil })
		}
		for _, set := range []string{`process = 'q_gone'`, `at = '2020-01-01T00:00:00.000Z'`,
			`body = replace(body, 'first', 'other')`, `principal = 'os:2'`, `capability = 's.other'`} {
			d := keyedCall(t, fmt.Sprint(keyed, set))
			b.end(t, d, "first")
			err := b.Store.Update(t.Context(), func(tx *sql.Tx) error {
				_, err := tx.Exec(`UPDATE calls SET `+set+` WHERE id = $1`, d.Call.ID)
				return err
			})
			for range 2 {
				e, gerr := b.Get(t.Context(), d.Call.ID)
				if err != nil || gerr != nil || b.foreign(e) != (!keyed || strings.HasPrefix(set, "process")) {
					t.Errorf("keyed %v, %s: %+v %v %v", keyed, set, e, err, gerr)
				}
				err = b.Recorded(t.Context(), d.Call.ID)
			}
		}
	}
}

func keyedCall(t *testing.T, key string) policy.Decision { return keyed(t, key, `{"a":1}`) }
