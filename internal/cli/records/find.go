package records

import (
	"context"

	"waldo/internal/core/audit"
)

// Numbered returns the record with a number of the first column of waldo log; none if the log lacks it.
func Numbered(ctx context.Context, dir string, seq uint64) (found []audit.Record, err error) {
	if seq == 0 {
		return nil, nil // records are numbered from 1
	}
	err = audit.Range(ctx, dir, seq-1, seq, func(r audit.Record) error {
		found = append(found, r)
		return nil
	})
	return found, err
}
