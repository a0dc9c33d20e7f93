package call

import (
	"errors"
	"strings"
	"time"

	"waldo/internal/protocol/strictjson"
)

// Batch is the request in a call of request_approval: up to Count calls of a capability whose arguments hold these
// values.
type Batch struct {
	Capability Capability
	Count      int
	Arguments  map[string]strictjson.Value // names at the top of the arguments; at least one
	Life       time.Duration               // from the yes
}

// The bounds of a batch.
const (
	maxBatch     = 10_000
	maxBatchLife = 60 // minutes
	batchLife    = 15
)

var errBatch = errors.New("request_approval takes capability, count (1 to 10000), arguments (one value or more that " +
	"every call must hold), minutes (1 to 60; 15 where not given) and reason")

// ReadBatch reads the arguments of request_approval.
func ReadBatch(a Args) (Batch, error) {
	members, _ := a.Value().Members()
	var p struct {
		Capability string `json:"capability"`
		Count      int    `json:"count"`
		Minutes    int    `json:"minutes"`
	}
	p.Minutes = batchLife
	for name := range members {
		switch name {
		case "capability", "count", "arguments", "minutes", "reason":
		default:
			return Batch{}, errBatch
		}
	}
	if a.Value().Decode(&p) != nil {
		return Batch{}, errBatch
	}
	held, ok := members["arguments"].Members()
	if !ok || len(held) == 0 || p.Count < 1 || p.Count > maxBatch || p.Minutes < 1 || p.Minutes > maxBatchLife {
		return Batch{}, errBatch
	}
	c := Capability(strings.ReplaceAll(p.Capability, "__", "."))
	if !c.Named() {
		return Batch{}, errBatch
	}
	return Batch{c, p.Count, held, time.Duration(p.Minutes) * time.Minute}, nil
}

// Holds reports whether arguments hold every value of the batch, exactly.
func (b Batch) Holds(a Args) bool {
	members, ok := a.Value().Members()
	if !ok || len(b.Arguments) == 0 {
		return false
	}
	for name, want := range b.Arguments {
		got, ok := members[name]
		if !ok || got.Digest() != want.Digest() {
			return false
		}
	}
	return true
}
