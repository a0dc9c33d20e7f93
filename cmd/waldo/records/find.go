package records

import (
	"context"

	"waldo/internal/core/audit"
)

// Numbered returns the record with a number of the first column of waldo log; none if the log lacks it.
func Numbered(ctx context.Context, dir string, seq uint64) (found []audit.Record, err error) {
	of := audit.Selection{Match: func(r audit.Record) bool { return r.Seq == seq }}
	_, err = audit.Select(ctx, dir, of, func(r audit.Record) error {
		found = append(found, r)
		return nil
	})
	return found, err
}
