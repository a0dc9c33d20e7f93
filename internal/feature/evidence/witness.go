package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"waldo/internal/core/audit"
	"waldo/internal/storage/database"
	"waldo/internal/storage/safefile"
)

// Witness is another machine that cosigns checkpoints (C2SP tlog-witness).
type Witness struct {
	Name string // of its key
	Key  string // its vkey
	URL  string // the prefix of its endpoints; empty: it is asked by somebody else
}

// Witnesses returns the witnesses that a policy (C2SP tlog-policy) names.
func Witnesses(policy []byte) (out []Witness) {
	for line := range strings.Lines(string(policy)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != "witness" {
			continue
		}
		w := Witness{Name: f[1], Key: f[2]}
		if len(f) > 3 {
			w.URL = f[3]
		}
		out = append(out, w)
	}
	return out
}

// Limits on what another machine sends.
const (
	maxAnswer   = 64 << 10 // bytes of a witness's answer, or of a request to a witness
	maxProof    = 63       // hashes of a consistency proof
	askPatience = 10 * time.Second
)

// ErrRefused: a witness refused a checkpoint: the log is not the one that it saw before.
var ErrRefused = errors.New("the witness refused the checkpoint")

// errUnsatisfied: too few witnesses cosigned a checkpoint.
var errUnsatisfied = errors.New("the policy is not satisfied")

// current takes the records up to the head into the tree and has the witnesses cosign it. One process at a time does
// so: a witness must get the sizes in their order. What another process had all of them cosign meanwhile is not asked
// again. It returns what Cosign returns.
func (t *Tree) current(ctx context.Context, s *database.Store, policy []byte) (at *Checkpoint, failed []error, err error) {
	head, err := s.Head(ctx, audit.Name)
	if err != nil {
		return nil, nil, err
	}
	before := t.covering(policy, head) // it may be as old as the log: only a newer one proves that a witness saw this log now
	unlock, err := t.lock(ctx, askLock)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	if before == nil {
		if at = t.covering(policy, head); at != nil {
			return at, nil, nil
		}
	}
	at, err = t.grown(ctx, s)
	if err == nil && at == nil {
		err = ErrEmpty
	}
	if err != nil {
		return nil, nil, err
	}
	failed, err = t.Cosign(ctx, http.DefaultClient, policy, at)
	return at, failed, err
}

// covering returns the checkpoint that every witness with an address cosigned, if it has the record of a head; nil:
// none.
func (t *Tree) covering(policy []byte, head *database.Head) *Checkpoint {
	c, err := t.Cosigned(policy)
	if err != nil || c == nil || head == nil || head.Seq < c.First || head.Seq >= c.First+uint64(c.N) {
		return nil
	}
	want, err := Leaf(head.Hash)
	if err != nil {
		return nil
	}
	if leaf, err := t.leaf(c, int64(head.Seq-c.First)); err != nil || leaf != want {
		return nil
	}
	var all []note.Verifier
	for _, w := range asked(policy) {
		v, err := torchwood.NewCosignatureVerifier(w.Key)
		if err != nil {
			return nil
		}
		all = append(all, v)
	}
	if n, err := note.Open(c.Signed, note.VerifierList(all...)); err != nil || len(n.Sigs) != len(all) {
		return nil
	}
	return c
}

// asked returns the witnesses of a policy that have an address.
func asked(policy []byte) []Witness {
	return slices.DeleteFunc(Witnesses(policy), func(w Witness) bool { return w.URL == "" })
}

// Ask posts a checkpoint to a witness with the proof that it continues what the witness saw last, and returns the
// cosignature, which was checked.
func (t *Tree) Ask(ctx context.Context, client *http.Client, w Witness, at *Checkpoint) (line string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	cosigner, err := torchwood.NewCosignatureVerifier(w.Key)
	if err != nil {
		return "", fmt.Errorf("witness %s: %w", w.Name, err)
	}
	old := min(t.seen(w), at.N) // beyond it, the witness would call the request malformed
	for range 3 {
		code, body, kind, err := t.post(ctx, client, w, at, old)
		switch {
		case err != nil:
			return "", fmt.Errorf("witness %s: %w", w.Name, err)
		case code == http.StatusOK:
			signed := append(bytes.Clone(at.Signed), body...)
			n, err := note.Open(signed, note.VerifierList(cosigner))
			if err != nil || len(n.Sigs) != 1 {
				return "", fmt.Errorf("witness %s: its answer is not its cosignature of this checkpoint", w.Name)
			}
			line = fmt.Sprintf("— %s %s\n", n.Sigs[0].Name, n.Sigs[0].Base64) // nothing else that it sent
			return line, safefile.Replace(t.seenFile(w), []byte(strconv.FormatInt(at.N, 10)), 0o600)
		case code == http.StatusConflict && kind == "text/x.tlog.size":
			size, err := strconv.ParseInt(strings.TrimSpace(string(body)), 10, 64)
			if err != nil || size < 0 {
				return "", fmt.Errorf("witness %s: its answer is not a size", w.Name)
			}
			if size > at.N {
				return "", fmt.Errorf("%w: %s has seen %d records of this log, which has %d now", ErrRefused, w.Name, size, at.N)
			}
			if size == old {
				return "", fmt.Errorf("%w: %s has seen another log of %d records", ErrRefused, w.Name, size)
			}
			old = size
		case code == http.StatusUnprocessableEntity:
			return "", fmt.Errorf("%w: %s answered %d: %.200q", ErrRefused, w.Name, code, body)
		default:
			return "", fmt.Errorf("witness %s answered %d: %.200q", w.Name, code, body)
		}
	}
	return "", fmt.Errorf("witness %s: it names another size each time", w.Name)
}

func (t *Tree) seenFile(w Witness) string {
	v, err := torchwood.NewCosignatureVerifier(w.Key)
	if err != nil {
		return filepath.Join(t.Dir, "witness")
	}
	return filepath.Join(t.Dir, fmt.Sprintf("witness-%08x", v.KeyHash()))
}

// seen is the size that a witness has seen, as far as is known here. The witness corrects it.
func (t *Tree) seen(w Witness) int64 {
	b, _ := safefile.Read(t.seenFile(w))
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return max(n, 0)
}

func (t *Tree) post(
	ctx context.Context, client *http.Client, w Witness, at *Checkpoint, old int64,
) (code int, body []byte, kind string, err error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "old %d\n", old)
	if old > 0 && old < at.N {
		proof, err := tlog.ProveTree(at.N, old, t.hashes(at))
		if err != nil {
			return 0, nil, "", err
		}
		for _, h := range proof {
			fmt.Fprintf(&b, "%s\n", h)
		}
	}
	b.WriteString("\n")
	b.Write(at.Signed)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(w.URL, "/")+"/add-checkpoint", &b)
	if err != nil {
		return 0, nil, "", err
	}
	own := *client
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := own.Do(req) // the policy names the witness: it sends waldo nowhere else
	if err != nil {
		return 0, nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, body, resp.Header.Get("Content-Type"), err
}

// Cosign asks every witness that a policy gives an address, and stores the checkpoint with the cosignatures where the
// policy is satisfied. It returns what failed; the policy may be satisfied without.
func (t *Tree) Cosign(ctx context.Context, client *http.Client, policy []byte, at *Checkpoint) (failed []error, err error) {
	rules, err := torchwood.ParsePolicy(policy)
	if err != nil {
		return nil, err
	}
	type answer struct {
		line string
		err  error
	}
	all := asked(policy)
	answers := make([]answer, len(all))
	var done sync.WaitGroup
	for i, w := range all {
		done.Go(func() { answers[i].line, answers[i].err = t.Ask(ctx, client, w, at) })
	}
	done.Wait()
	signed := bytes.Clone(at.Signed)
	for _, a := range answers {
		if a.err != nil {
			failed = append(failed, a.err)
		}
		signed = append(signed, a.line...)
	}
	if _, _, err := torchwood.VerifyCheckpoint(signed, rules); err != nil {
		return failed, fmt.Errorf("%w: %w", errUnsatisfied, errors.Join(append([]error{err}, failed...)...))
	}
	return failed, safefile.Replace(filepath.Join(t.Dir, cosignedFile), signed, 0o600)
}

// cosignedFile is the newest checkpoint that satisfied the policy.
const cosignedFile = "checkpoint.cosigned"

// Cosigned returns the newest checkpoint that satisfied the policy, as a signed note; nil: none has.
func (t *Tree) Cosigned(policy []byte) (*Checkpoint, error) {
	rules, err := torchwood.ParsePolicy(policy)
	if err != nil {
		return nil, err
	}
	b, err := safefile.Read(filepath.Join(t.Dir, cosignedFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c, _, err := verified(b, rules)
	if err != nil {
		return nil, err
	}
	first, err := firstOf(c.Origin)
	return &Checkpoint{c, first, b}, err
}
