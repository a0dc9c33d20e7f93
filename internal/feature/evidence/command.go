package evidence

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app/secrets"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/cli/records"
	"waldo/internal/core/audit"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

// commands are those below waldo log.
func commands(g *cli.Context) []*cobra.Command {
	return []*cobra.Command{newCheckpoint(g), newCopy(g), newExport(g), newPolicy(g), newProve(g), newWitness(g)}
}

// now advances the tree of the state directory.
func now(ctx context.Context, g *cli.Context) (*Tree, *Checkpoint, error) {
	s, err := g.OpenStorage()
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	t := treeOf(s.Store)
	at, err := t.grown(ctx, s.Store)
	if err != nil {
		return nil, nil, &exitcode.Exit{Code: exitcode.Problems, Err: err, Hint: "look with waldo log verify"}
	}
	if at == nil {
		return nil, nil, exitcode.Mistake("the first call writes one", "%v", ErrEmpty)
	}
	return t, at, nil
}

func newCheckpoint(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "checkpoint", Short: "Sign and print a checkpoint of the log", Args: cobra.NoArgs,
		Long: "Takes all records into the log's tree (RFC 6962) and prints its checkpoint, a signed note (C2SP tlog-checkpoint).\n" +
			"Keep it elsewhere: a log that was rewritten since has another root.",
		Example: "  waldo log checkpoint\n  waldo log checkpoint --json",
		RunE: func(c *cobra.Command, _ []string) error {
			t, at, err := now(c.Context(), g)
			if err != nil {
				return err
			}
			if !g.JSON {
				_, err := c.OutOrStdout().Write(at.Signed)
				return err
			}
			key, err := t.Key(at.Origin)
			if err != nil {
				return err
			}
			return terminal.JSON(c.OutOrStdout(), map[string]any{
				"origin": at.Origin, "size": at.N, "root": at.Hash.String(), "key": key, "first_seq": at.First,
				"note": string(at.Signed),
			})
		},
	}
}

func newCopy(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "copy", Short: "Copy what is new in the log to the bucket of waldo.yaml", Args: cobra.NoArgs,
		Long: "Puts the closed segments, the tiles and the newest checkpoint into the bucket of blobs.url, each once. waldo serve\n" +
			"does so every minute. It compares the bucket with the log first, and copies nothing where that is another log.",
		Example: "  waldo log copy\n  waldo log verify --bucket",
		RunE: func(c *cobra.Command, _ []string) error {
			_, cfg, err := g.Configured()
			if err != nil {
				return err
			}
			s, err := g.OpenStorage()
			if err != nil {
				return err
			}
			defer s.Close()
			to, err := copiesOf(s.Store, cfg.Blobs, secrets.New(s.Store.Dir(), cfg, g.Known, nil).Get)
			if err == nil && to == nil {
				return exitcode.Mistake("blobs: {url: …}; docs/evidence.md shows it", "waldo.yaml names no bucket")
			}
			if err == nil {
				err = to.copy(c.Context())
			}
			if err != nil {
				return &exitcode.Exit{Code: exitcode.Problems, Err: err, Hint: "waldo log verify --bucket names each object"}
			}
			m := to.read()
			if g.JSON {
				return terminal.JSON(c.OutOrStdout(), m)
			}
			display.Fprintf(c.OutOrStdout(), "%s has the checkpoint of the first %d records, and the segments up to record %d\n",
				m.URL, m.Size, m.Segment)
			return nil
		},
	}
}

func newPolicy(g *cli.Context) *cobra.Command {
	var witnesses []string
	c := &cobra.Command{
		Use: "policy [--witness VKEY=URL]..", Short: "Print the policy that verifies this log", Args: cobra.NoArgs,
		Long: "Prints a policy (C2SP tlog-policy): the log's key, and the witnesses that must all cosign. Give it to whoever\n" +
			"verifies receipts, and name it in waldo.yaml: log: {policy: FILE}. The comment with the root is the key of the first\n" +
			"approver, which receipts are held against.",
		Example: "  waldo log policy > log.policy\n  waldo log policy --witness 'w.example+1c2d3e4f+BA…=https://w.example' > log.policy",
		RunE: func(c *cobra.Command, _ []string) error {
			t, at, err := now(c.Context(), g)
			if err != nil {
				return err
			}
			key, err := t.Key(at.Origin)
			if err != nil {
				return err
			}
			var b strings.Builder
			fmt.Fprintf(&b, "log %s\n", key)
			approvers, err := audit.WithApprovers(c.Context(), t.Dir, nil)
			if err != nil {
				return err
			}
			for _, r := range approvers {
				if root := audit.FirstApprover(r); root != "" {
					fmt.Fprintf(&b, "# root %s\n", root)
					break
				}
			}
			names := []string{}
			for i, w := range witnesses {
				at := strings.Index(w, "=http")
				if at < 0 {
					return exitcode.Mistake("--witness VKEY=URL", "%q has no URL", w)
				}
				names = append(names, fmt.Sprintf("w%d", i+1))
				fmt.Fprintf(&b, "witness w%d %s %s\n", i+1, w[:at], w[at+1:])
			}
			quorum := "none"
			switch len(names) {
			case 0:
			case 1:
				quorum = names[0]
			default:
				fmt.Fprintf(&b, "group all all %s\n", strings.Join(names, " "))
				quorum = "all"
			}
			fmt.Fprintf(&b, "quorum %s\n", quorum)
			_, err = io.WriteString(c.OutOrStdout(), b.String())
			return err
		},
	}
	c.Flags().StringSliceVar(&witnesses, "witness", nil, "the key and the address of a witness, as `VKEY=URL`; may be repeated")
	return c
}

func newProve(g *cli.Context) *cobra.Command {
	var out string
	c := &cobra.Command{
		Use: "prove ID | NUMBER", Short: "Write receipts: proofs that records are in the log", Args: cobra.ExactArgs(1),
		Long: "Writes one receipt (C2SP tlog-proof) for each record about a call, decision or approval: the record, its path in\n" +
			"the tree, and the newest checkpoint that the policy's witnesses cosigned. Where a person answered, it also writes\n" +
			"those of all enrolments and revocations, so that a key which was revoked before shows. Whoever has the policy\n" +
			"can check them without this machine: waldo log verify --proof FILE --proof FILE --policy FILE.",
		Example: "  waldo log prove d_… --out receipts\n  waldo log prove 12",
		RunE: func(c *cobra.Command, args []string) error {
			t, at, err := now(c.Context(), g)
			if err != nil {
				return err
			}
			found, err := about(c, t.Dir, args[0])
			if err == nil {
				found, err = withApprovers(c.Context(), t.Dir, found)
			}
			if err != nil {
				return err
			}
			if _, cfg, err := g.Configured(); err == nil {
				policy, err := policyOf(cfg)
				if err != nil {
					return err
				}
				if policy != nil {
					s, err := g.OpenStorage()
					if err != nil {
						return err
					}
					defer s.Close()
					if _, _, err := t.current(c.Context(), s.Store, policy); err != nil {
						return &exitcode.Exit{Code: exitcode.Problems, Err: err, Hint: "the receipt needs the witnesses of log.policy"}
					}
					if at, err = t.Cosigned(policy); err != nil {
						return err
					}
				}
			}
			if err := os.MkdirAll(out, 0o755); err != nil {
				return err
			}
			for _, r := range found {
				b, err := t.Receipt(at, r)
				if err != nil {
					return &exitcode.Exit{Code: exitcode.Problems, Err: err}
				}
				path := filepath.Join(out, fmt.Sprintf("%d-%s.tlog-proof", r.Seq, r.Kind))
				if err := os.WriteFile(path, b, 0o644); err != nil {
					return err
				}
				display.Fprintf(c.OutOrStdout(), "%s\n", path)
			}
			return nil
		},
	}
	c.Flags().StringVar(&out, "out", ".", "the `FOLDER` for the receipts")
	return c
}

// withApprovers adds the enrolments and revocations of all approvers to records with an answer.
func withApprovers(ctx context.Context, dir string, found []audit.Record) ([]audit.Record, error) {
	if !slices.ContainsFunc(found, answers) {
		return found, nil
	}
	return audit.WithApprovers(ctx, dir, found)
}

func answers(r audit.Record) bool { return r.Kind == audit.KindVerdict || r.Kind == audit.KindAnswer }

// about returns the records about an id, or the one of a number. The index finds them. Receipt holds each against the
// tree.
func about(c *cobra.Command, dir, ident string) (found []audit.Record, err error) {
	if seq, serr := strconv.ParseUint(ident, 10, 64); serr == nil {
		found, err = records.Numbered(c.Context(), dir, seq)
	} else {
		of := audit.Selection{About: []string{ident}, Progress: records.Indexing(c.ErrOrStderr())}
		take := func(r audit.Record) error {
			found = append(found, r)
			return nil
		}
		_, err = audit.Select(c.Context(), dir, of, take)
		if asked := questions(found); err == nil && len(asked) > 0 { // whose verdicts name no call
			found, of.About = nil, append(asked, ident)
			_, err = audit.Select(c.Context(), dir, of, take)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, exitcode.Mistake("waldo log shows the last records", "the log has nothing about %s", ident)
	}
	return found, nil
}

// questions returns the ids of the approvals that records name.
func questions(found []audit.Record) (ids []string) {
	for _, r := range found {
		var of struct {
			ApprovalID string `json:"approval_id"`
		}
		if json.Unmarshal(r.Body, &of) == nil && of.ApprovalID != "" {
			ids = append(ids, of.ApprovalID)
		}
	}
	return ids
}

// first holds the keys of first approvers among some records against the root that a policy names.
func first(records []audit.Record, root string) (found []audit.Finding) {
	for _, r := range records {
		f := audit.Finding{Unchecked: root == "", Problem: root != "", Code: "approver.root", Seq: r.Seq}
		key := audit.FirstApprover(r)
		f.Text = fmt.Sprintf("record %d enrols the first approver with the key %s", r.Seq, key) + map[bool]string{
			true: ", and the policy names no root to compare it with", false: ", and the policy names the root " + root}[root == ""]
		if key != "" && key != root {
			found = append(found, f)
		}
	}
	return found
}

// rootLine is the comment of a policy that names the key of the first approver.
var rootLine = regexp.MustCompile(`(?m)^# root (sha256:[0-9a-f]{64})$`)

// readBounded reads a receipt or a policy. No record makes a receipt of 64 MiB.
func readBounded(name string) ([]byte, error) {
	const most = 64 << 20
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if len(b) > most {
		err = fmt.Errorf("%s has more than 64 MiB", name)
	}
	return b, err
}

// Receipt verifies receipts against a policy, offline, for waldo log verify --proof.
func (Evidence) Receipt(w io.Writer, files []string, policyFile string, asJSON bool) error {
	policy, err := readBounded(policyFile)
	if err != nil {
		return exitcode.Mistake("--policy FILE, as waldo log policy prints it", "%v", err)
	}
	var all []Verified
	for _, file := range files {
		b, err := readBounded(file)
		if err != nil {
			return exitcode.Mistake("a file that waldo log prove wrote", "%v", err)
		}
		v, err := VerifyReceipt(b, policy)
		if err != nil {
			return &exitcode.Exit{Code: exitcode.Problems, Err: fmt.Errorf("%s: %w", file, err)}
		}
		all = append(all, v)
	}
	var records []audit.Record
	for _, v := range all {
		records = append(records, v.parsed)
	}
	slices.SortFunc(records, func(a, b audit.Record) int { return cmp.Compare(a.Seq, b.Seq) })
	found := append(first(records, string(append(rootLine.FindSubmatch(policy), nil, nil)[1])), audit.Signatures(records)...)
	for _, v := range all {
		if v.cosigned == 0 {
			found = append(found, audit.Finding{Unchecked: true, Code: "witness.none", Seq: v.parsed.Seq,
				Text: fmt.Sprintf("record %d: no witness cosigned the checkpoint, which the log's key alone signs", v.parsed.Seq)})
		}
	}
	if asJSON {
		for i, v := range all {
			of := func(f audit.Finding) bool { return f.Seq != v.parsed.Seq }
			all[i].Findings = slices.DeleteFunc(slices.Clone(found), of)
		}
		if err := terminal.JSON(w, all); err != nil {
			return err
		}
	} else {
		for i, v := range all {
			r := v.parsed
			redacted := map[bool]string{true: "; its arguments are redacted and not compared with their digest"}[v.Redacted]
			display.Fprintf(w, "%s: sound: record %d, %s of %s, in the log %s of %d records%s\n%s\n", files[i], r.Seq, r.Kind,
				r.At, v.Origin, v.Size, redacted, display.Text(display.JSON(v.Record)))
			var a audit.Answered
			if answers(r) && json.Unmarshal(r.Body, &a) == nil && a.Yes && a.Refusal == "" {
				display.Fprintf(w, "yes by %s\n", a.Signers())
			}
		}
	}
	return signatures(w, found, asJSON)
}

// signatures says what the records of receipts claim of approvers and do not show.
func signatures(w io.Writer, found []audit.Finding, quiet bool) error {
	problem := false
	for _, f := range found {
		problem = problem || f.Problem
		if !quiet {
			word := map[bool]string{true: "problem:", false: "not checked:"}[f.Problem]
			display.Fprintf(w, "%s %s: %s\n", word, f.Code, f.Text)
		}
	}
	switch {
	case problem:
		return &exitcode.Exit{Code: exitcode.Problems, Text: "a receipt has an answer that its signature does not stand for"}
	case len(found) > 0:
		return &exitcode.Exit{Code: exitcode.Usage, Text: "not everything could be checked",
			Hint: "waldo log --kind approver has the numbers of the enrolments; add their receipts with --proof"}
	}
	return nil
}

const witnessKey = "witness-key"

// openWitness opens the witness of the state directory. Its key is made at first.
func openWitness(g *cli.Context, name string, logs []string) (*Server, error) {
	state, err := g.StateDir()
	if err != nil {
		return nil, err
	}
	key, err := keyOf(keysOf(state), witnessKey, true)
	if err != nil {
		return nil, err
	}
	s, err := NewServer(filepath.Join(state, "witness"), name, key, logs)
	if err != nil {
		return nil, exitcode.Mistake("--log VKEY as waldo log policy prints it; --name as in w.example.com", "%v", err)
	}
	return s, nil
}

func newWitness(g *cli.Context) *cobra.Command {
	var listen, name string
	var logs []string
	c := &cobra.Command{
		Use: "witness", Short: "Be a witness of other machines' logs", Args: cobra.NoArgs,
		Example: "  waldo log witness key --name w.example.com\n  waldo log witness serve --name w.example.com --log 'waldo/…'",
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	key := &cobra.Command{
		Use: "key", Short: "Print this witness's key", Args: cobra.NoArgs, Example: "  waldo log witness key --name w.example.com",
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := openWitness(g, name, logs)
			if err != nil {
				return err
			}
			display.Fprintf(c.OutOrStdout(), "%s\n", s.Key())
			return nil
		},
	}
	serve := &cobra.Command{
		Use: "serve --log VKEY..", Short: "Cosign the checkpoints of logs that only grow", Args: cobra.NoArgs,
		Long: "Serves C2SP tlog-witness. It cosigns a checkpoint of a known log if the checkpoint continues the last one that it\n" +
			"saw, and refuses it otherwise. Run it on a machine that the log's operator does not rule. Put TLS in front of it\n" +
			"where others reach it.",
		Example: "  waldo log witness serve --listen 127.0.0.1:7677 --name w.example.com --log 'waldo/…'",
		RunE: func(c *cobra.Command, _ []string) error {
			if len(logs) == 0 {
				return exitcode.Mistake("--log VKEY", "a witness needs the key of at least one log")
			}
			s, err := openWitness(g, name, logs)
			if err != nil {
				return err
			}
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return err
			}
			srv := &http.Server{Handler: s, ReadTimeout: askPatience, WriteTimeout: askPatience, MaxHeaderBytes: 16 << 10}
			display.Fprintf(c.OutOrStdout(), "witness %s at http://%s\n", s.Key(), l.Addr())
			ended := make(chan error, 1)
			go func() { ended <- srv.Serve(l) }()
			select {
			case err := <-ended:
				return err
			case <-c.Context().Done():
				short, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				return srv.Shutdown(short)
			}
		},
	}
	for _, one := range []*cobra.Command{key, serve} {
		one.Flags().StringVar(&name, "name", "waldo-witness", "the `NAME` of this witness's key, as in w.example.com")
	}
	serve.Flags().StringVar(&listen, "listen", "127.0.0.1:7677", "the `ADDRESS` to listen on")
	serve.Flags().StringSliceVar(&logs, "log", nil, "the key of a log, a `VKEY`; may be repeated")
	c.AddCommand(key, serve)
	return c
}
