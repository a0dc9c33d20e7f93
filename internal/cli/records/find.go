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
	_, err = audit.Select(ctx, dir, audit.Selection{Before: seq + 1, Last: 1}, func(r audit.Record) error {
		if r.Seq == seq {
			found = append(found, r)
		}
		return nil
	})
	return found, err
}
