// Package evidence makes the log one that a stranger can check: a Merkle tree over its records with signed checkpoints
// (C2SP tlog-tiles, tlog-checkpoint), witnesses on other machines (tlog-witness, tlog-policy), and receipts
// (tlog-proof).
package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"

	"waldo/internal/app"
	"waldo/internal/app/secrets"
	"waldo/internal/app/trust"
	"waldo/internal/core/audit"
	"waldo/internal/feature"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/storage/database"
	"waldo/internal/storage/safefile"
	"waldo/internal/storage/secretstore"
)

// Feature is the log's tree, its witnesses and receipts.
var Feature = feature.Feature{Name: "evidence", Open: open, Log: commands, Evidence: Evidence{}, Doctor: doctor}

const (
	growEvery = 5 * time.Second
	askEvery  = time.Minute
)

func open(h *app.App) (app.Running, error) {
	c, err := copiesOf(h.Store, h.Config.Blobs, h.Secret)
	if err != nil {
		return app.Running{}, err
	}
	w := witness{tree: treeOf(h.Store), store: h.Store, config: h.Config, copies: c}
	r := app.Running{Serve: func(ctx context.Context) { serve(ctx, h) }, Work: func(ctx context.Context) { keepCopying(ctx, h) },
		Witness: w}
	if c != nil {
		r.Uncopied = c.behind
	}
	return r, nil
}

// witness asks the witnesses of one configuration before a call whose contract requires them.
type witness struct {
	tree   *Tree
	store  *database.Store
	config *contract.Config
	copies *copies // nil: the configuration has no bucket
}

func (w witness) Cosigned(ctx context.Context) *call.Reason {
	policy, err := policyOf(w.config)
	if err == nil && policy == nil {
		err = errors.New("no log.policy names witnesses")
	}
	var rules torchwood.Policy
	if err == nil {
		rules, err = torchwood.ParsePolicy(policy)
	}
	if err != nil {
		return &call.Reason{Code: "witness.policy", Text: err.Error()}
	}
	var failed []error
	own, err := w.tree.grown(ctx, w.store)
	if err == nil && own != nil {
		if _, _, unmet := torchwood.VerifyCheckpoint(own.Signed, rules); unmet == nil {
			return &call.Reason{Code: "witness.policy", Text: "log.policy asks for no witness: the log's own signature satisfies it"}
		}
	}
	if err == nil {
		_, failed, err = w.tree.current(ctx, w.store, policy)
	}
	for _, f := range failed {
		if errors.Is(f, ErrRefused) {
			return &call.Reason{Code: "witness.refused",
				Text: "a witness saw another log: this one was rolled back or rewritten; waldo log verify says more"}
		}
	}
	switch {
	case errors.Is(err, ErrForked):
		return &call.Reason{Code: "tree.differs", Text: "the log is not the one of its checkpoint; waldo log verify says more"}
	case errors.Is(err, errUnsatisfied), err != nil && ctx.Err() != nil: // or the call ended while it waited for its turn
		return &call.Reason{Code: "witness.missing", Text: "too few witnesses of log.policy answered; try again later"}
	case err != nil:
		return &call.Reason{Code: "witness.failed", Text: "the log has no sound checkpoint; waldo log verify says more"}
	}
	return nil
}

// serve grows the tree while waldo listens, and asks the witnesses of the configuration in force.
func serve(ctx context.Context, h *app.App) {
	t, asked, said := treeOf(h.Store), time.Time{}, ""
	tick := time.NewTicker(growEvery)
	defer tick.Stop()
	for {
		err := func() error {
			at, err := t.grown(ctx, h.Store)
			if err != nil || at == nil || time.Since(asked) < askEvery {
				return err
			}
			policy, err := policyOf(h.InForce().Config)
			if err != nil || policy == nil {
				return err
			}
			asked = time.Now()
			_, failed, err := t.current(ctx, h.Store, policy)
			return errors.Join(append(failed, err)...)
		}()
		if text := fmt.Sprint(err); err != nil && text != said && ctx.Err() == nil {
			slog.Warn("the log's checkpoint", "why", err)
			said = text
		} else if err == nil {
			said = ""
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// treeOf returns the tree of the log of a state directory.
func treeOf(s *database.Store) *Tree {
	return &Tree{Dir: audit.Dir(s.Dir()), Keys: keysOf(s.Dir())}
}

// keysOf returns waldo's store of a state directory. Its first key is a file, unless the operator chose a keyring.
func keysOf(state string) *secretstore.Store {
	s := secrets.Open(state)
	if !s.HasKey() {
		s.Keyring = nil
	}
	return s
}

// grown advances the tree up to the head, which names only records that are on the disk. Nil: there are none.
func (t *Tree) grown(ctx context.Context, s *database.Store) (*Checkpoint, error) {
	head, err := s.Head(ctx, audit.Name)
	if err != nil || head == nil || head.Seq == 0 {
		return nil, err
	}
	at, err := t.Advance(ctx, head.Seq)
	if errors.Is(err, ErrEmpty) {
		return nil, nil
	}
	return at, err
}

// policyOf returns the policy that a configuration names, as it was accepted; nil: none.
func policyOf(cfg *contract.Config) ([]byte, error) {
	if cfg == nil || cfg.Log.Policy == "" {
		return nil, nil
	}
	b, err := os.ReadFile(cfg.Log.Policy)
	if err != nil {
		return nil, fmt.Errorf("log.policy: %w", err)
	}
	if strictjson.Digest(b) != cfg.Log.Accepted {
		return nil, fmt.Errorf("%s is not the one that was accepted: read it, then run: waldo trust %s, and start waldo again",
			cfg.Log.Policy, cfg.File)
	}
	return b, nil
}

// Evidence checks the tree of a log, for waldo log verify.
type Evidence struct{}

// Check holds the records against the tree and its checkpoint, asks the witnesses of the policy, and compares the log
// with its copy.
func (Evidence) Check(ctx context.Context, s *database.Store, cfg *contract.Config, bucket bool) []audit.Finding {
	found := append(treeOf(s).check(ctx, s, cfg), inBucket(ctx, s, cfg, bucket)...)
	if cfg == nil || cfg.Log.Policy == "" {
		found = append(found, unasked(s)...)
	}
	return found
}

// unasked names the configurations with witnesses that are trusted here, where the one that is loaded has none: a log
// that went back in time is not found without them.
func unasked(s *database.Store) (found []audit.Finding) {
	all, err := trust.Read(s.Dir())
	if err != nil {
		return []audit.Finding{audit.Unchecked("witness.policy", "%v", err)}
	}
	for _, file := range slices.Sorted(maps.Keys(all)) {
		if all[file].Policy != "" {
			found = append(found, audit.Unchecked("witness.elsewhere",
				"the witnesses of %s were not asked: run it in that folder, or with --config", file))
		}
	}
	b, err := safefile.Read(filepath.Join(audit.Dir(s.Dir()), cosignedFile))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return append(found, audit.Unchecked("witness.elsewhere", "%v", err))
	case len(found) > 0:
		return found
	case bytes.Count(b, []byte("\n\u2014 ")) > 1: // the first signature is the log's own
		return []audit.Finding{audit.Unchecked("witness.elsewhere",
			"witnesses cosigned this log, and no configuration here names them")}
	}
	return []audit.Finding{{Code: "witness.none", Text: "no witness was asked: no configuration here names one. " +
		"A log that was put back with all its heads looks sound"}}
}

func (t *Tree) check(ctx context.Context, s *database.Store, cfg *contract.Config) []audit.Finding {
	policy, err := policyOf(cfg)
	if err != nil {
		return []audit.Finding{audit.Unchecked("witness.policy", "%v", err)}
	}
	at, err := t.Read()
	if err == nil && policy != nil { // the witnesses see what the log is now
		at, err = t.grown(ctx, s)
	}
	switch {
	case errors.Is(err, ErrForked):
		return []audit.Finding{problem("tree.differs", "%v", err)}
	case errors.Is(err, ErrNoKey):
		return []audit.Finding{audit.Unchecked("checkpoint.key", "%v", err)}
	case err != nil:
		return []audit.Finding{problem("checkpoint.damaged", "%v", err)}
	case at == nil && policy != nil:
		return []audit.Finding{audit.Unchecked("witness.unasked", "the log has no checkpoint, and log.policy asks for witnesses")}
	case at == nil:
		return nil
	}
	found := t.held(ctx, at)
	if policy == nil || len(found) > 0 {
		return found
	}
	return t.witnessed(ctx, s, policy)
}

func problem(code, format string, args ...any) audit.Finding {
	return audit.Finding{Problem: true, Code: code, Text: fmt.Sprintf(format, args...)}
}

// held holds every record that is there against its leaf.
func (t *Tree) held(ctx context.Context, at *Checkpoint) []audit.Finding {
	seen, end := uint64(0), at.First+uint64(at.N)
	var records []audit.Record
	compare := func() error {
		indexes := make([]int64, len(records))
		for i, r := range records {
			indexes[i] = tlog.StoredHashIndex(0, int64(r.Seq-at.First))
		}
		leaves, err := t.hashes(at).ReadHashes(indexes)
		if err != nil {
			return fmt.Errorf("the tiles do not fit the checkpoint: %w", err)
		}
		for i, r := range records {
			if leaf, err := Leaf(r.Hash); err != nil || leaf != leaves[i] {
				return fmt.Errorf("record %d is another than the tree has", r.Seq)
			}
		}
		records = records[:0]
		return nil
	}
	err := audit.Range(ctx, t.Dir, at.First-1, end-1, func(r audit.Record) error {
		seen = r.Seq
		if records = append(records, r); len(records) < 4096 {
			return nil
		}
		return compare()
	})
	if err == nil && len(records) > 0 {
		err = compare()
	}
	switch {
	case err != nil:
		return []audit.Finding{problem("tree.differs", "%v", err)}
	case seen+1 < end:
		return []audit.Finding{problem("tree.longer", "the log ends with record %d, and its checkpoint has %d records from %d",
			seen, at.N, at.First)}
	}
	return nil
}

// witnessed asks each witness whether this log is the one that it saw.
func (t *Tree) witnessed(ctx context.Context, s *database.Store, policy []byte) (found []audit.Finding) {
	at, failed, err := t.current(ctx, s, policy)
	for _, f := range failed {
		if errors.Is(f, ErrRefused) {
			found = append(found, problem("witness.refused", "%v", f))
		}
	}
	if err != nil && len(found) == 0 {
		found = append(found, audit.Unchecked("witness.missing", "%v", err))
	}
	if len(found) > 0 {
		return found
	}
	all := len(asked(policy))
	for _, f := range failed { // the others are as many as the policy asks for
		found = append(found, audit.Finding{Code: "witness.away", Text: fmt.Sprintf("%v: what it saw was not compared", f)})
	}
	return append(found, audit.Finding{Code: "witness.seen",
		Text: fmt.Sprintf("%d of %d witnesses of log.policy cosigned this log of %d records from record %d",
			all-len(failed), all, at.N, at.First)})
}
