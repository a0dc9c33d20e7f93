package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"waldo/internal/approval"
	"waldo/internal/audit"
	"waldo/internal/contract"
	"waldo/internal/secret"
	"waldo/internal/store"
)

// desk opens the place where questions lie, without the rest of the house.
func desk(g *global) (*approval.Desk, func() error, error) {
	state, cfg, err := configured(g)
	if err != nil {
		return nil, nil, err
	}
	s, err := store.Open(state)
	if err != nil {
		return nil, nil, err
	}
	return &approval.Desk{Store: s, Rules: func() contract.Approvals { return cfg.Approval }}, s.Close, nil
}

// onRecord opens the same for a change of who may answer, which goes to the log.
func onRecord(ctx context.Context, g *global) (*approval.Desk, func() error, error) {
	k, done, err := desk(g)
	if err != nil {
		return nil, nil, err
	}
	log, err := openLog(ctx, k.Store)
	if err != nil {
		return nil, nil, errors.Join(err, done())
	}
	k.Record = enrolments(log)
	return k, func() error { return errors.Join(log.Close(), done()) }, nil
}

// enrolments records who may answer.
func enrolments(log *audit.Log) func(ctx context.Context, e approval.Enrolment) error {
	r := &audit.Recorder{Log: log}
	return func(ctx context.Context, e approval.Enrolment) error { return r.Approver(ctx, principal(), e) }
}

func newApprovals(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "approvals", Short: "List the questions that wait for a human", Args: cobra.NoArgs,
		Example: "  waldo approvals\n  waldo approvals --json",
		RunE: func(c *cobra.Command, _ []string) error {
			k, done, err := desk(g)
			if err != nil {
				return err
			}
			defer done()
			open, err := k.Pending(c.Context())
			if err != nil {
				return err
			}
			if g.json {
				if open == nil {
					open = []approval.Question{}
				}
				return printJSON(c.OutOrStdout(), open)
			}
			if len(open) == 0 {
				fmt.Fprintln(c.OutOrStdout(), "nothing waits for an answer")
			}
			for _, q := range open {
				fmt.Fprintln(c.OutOrStdout(), q.Show())
			}
			return nil
		},
	}
}

func newApprove(g *global) *cobra.Command {
	var as, enroll, revoke string
	var roles []string
	c := &cobra.Command{
		Use: "approve ID | --enroll NAME", Short: "Answer a question with yes, or enrol an approver",
		Long: "Answers with an approver's key, which is sealed with a passphrase. Being the same user as the agent proves\n" +
			"nothing: the agent does not hold the passphrase. The first approver is enrolled at a terminal; every later one\n" +
			"needs the first one's passphrase as well.",
		Example: "  waldo approve --enroll alice --role manager\n  waldo approve a_… --as alice",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case enroll != "" && len(args) == 0:
				return enrol(c, g, enroll, roles)
			case revoke != "" && len(args) == 0:
				return revokeApprover(c, g, revoke)
			case len(args) == 1 && enroll == "" && revoke == "":
				return answer(c, g, args[0], as, true, "")
			}
			return usage("waldo approvals lists the ids", "give the id of a question, or --enroll NAME")
		},
	}
	c.Flags().StringVar(&as, "as", "", "`NAME` of the approver (default: the only one enrolled)")
	c.Flags().StringVar(&enroll, "enroll", "", "make a key for a new approver `NAME`")
	c.Flags().StringVar(&revoke, "revoke", "", "end the right of `NAME` to answer")
	c.Flags().StringSliceVar(&roles, "role", nil, "`ROLE` of the new approver, as contracts name it")
	return c
}

func newDeny(g *global) *cobra.Command {
	var as, reason string
	c := &cobra.Command{
		Use: "deny ID", Short: "Answer a question with no", Example: "  waldo deny a_… --reason 'not before Monday'",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return answer(c, g, args[0], as, false, reason) },
	}
	c.Flags().StringVar(&as, "as", "", "`NAME` of the approver (default: the only one enrolled)")
	c.Flags().StringVar(&reason, "reason", "", "`WHY`, shown to the agent")
	return c
}

func answer(c *cobra.Command, g *global, question, as string, yes bool, reason string) error {
	k, done, err := desk(g)
	if err != nil {
		return err
	}
	defer done()
	q, state, err := k.Question(c.Context(), question)
	if err != nil {
		return refusedAnswer(err)
	}
	if state != approval.Pending {
		return &exit{code: exitWaiting, text: fmt.Sprintf("%s is not waiting: %s", question, state)}
	}
	fmt.Fprintln(c.ErrOrStderr(), q.Show())
	by, err := signer(c.Context(), c, k, as)
	if err != nil {
		return err
	}
	if err := k.Answer(c.Context(), by, question, yes, reason); err != nil {
		return refusedAnswer(err)
	}
	word := "no"
	if yes {
		word = "yes"
	}
	if g.json {
		return printJSON(c.OutOrStdout(), map[string]any{"approval_id": question, "yes": yes, "by": by.Name()})
	}
	fmt.Fprintf(c.OutOrStdout(), "%s: %s, by %s\n", question, word, by.Name())
	return nil
}

// refusedAnswer gives an answer that was not taken the exit code of a contract's refusal, and one to no
// question that of usage.
func refusedAnswer(err error) error {
	var r *approval.Refused
	if errors.As(err, &r) && r.Reason.Code == "approval.unknown" {
		return usage("waldo approvals lists what waits", "%s", reasonLine(r))
	}
	if errors.As(err, &r) {
		return &exit{code: exitDenied, text: reasonLine(r), hint: "waldo approvals lists what waits"}
	}
	return err
}

func reasonLine(r *approval.Refused) string { return r.Reason.Code + ": " + r.Reason.Text }

// signer unseals the key of an approver with a passphrase typed at the terminal.
func signer(ctx context.Context, c *cobra.Command, k *approval.Desk, as string) (approval.Signer, error) {
	all, err := k.Approvers(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, &exit{code: exitUsage, text: "no approver is enrolled", hint: "at a terminal: waldo approve --enroll NAME"}
	}
	if as == "" && len(all) > 1 {
		return nil, usage("--as NAME", "there are %d approvers: say which you are", len(all))
	}
	if as == "" {
		as = all[0].Name
	}
	pass, err := passphrase(c, "passphrase of "+as+": ")
	if err != nil {
		return nil, err
	}
	s, err := k.Unseal(as, pass)
	if err != nil {
		return nil, &exit{code: exitWaiting, err: err}
	}
	return s, nil
}

func enrol(c *cobra.Command, g *global, name string, roles []string) error {
	k, done, err := onRecord(c.Context(), g)
	if err != nil {
		return err
	}
	defer done()
	all, err := k.Approvers(c.Context())
	if err != nil {
		return err
	}
	var by approval.Signer
	if len(all) > 0 {
		if by, err = signer(c.Context(), c, k, all[0].By); err != nil {
			return err
		}
	}
	pass, err := passphrase(c, fmt.Sprintf("new passphrase for %s (%d characters or more): ", name, approval.MinPassphrase))
	if err != nil {
		return err
	}
	again, err := passphrase(c, "the same again: ")
	if err != nil {
		return err
	}
	if pass.Reveal() != again.Reveal() {
		return usage("", "the two passphrases differ; nothing was changed")
	}
	a, err := k.Enroll(c.Context(), name, roles, pass, by)
	if err != nil {
		return refusedAnswer(err)
	}
	fmt.Fprintf(c.OutOrStdout(), "enrolled %s, key %s\n", a.Name, a.Fingerprint())
	return nil
}

func revokeApprover(c *cobra.Command, g *global, name string) error {
	k, done, err := onRecord(c.Context(), g)
	if err != nil {
		return err
	}
	defer done()
	all, err := k.Approvers(c.Context())
	if err != nil || len(all) == 0 {
		return errors.Join(err, &exit{code: exitUsage, text: "no approver is enrolled"})
	}
	by, err := signer(c.Context(), c, k, all[0].By)
	if err != nil {
		return err
	}
	if err := k.Revoke(c.Context(), name, by); err != nil {
		return refusedAnswer(err)
	}
	fmt.Fprintf(c.OutOrStdout(), "revoked %s\n", name)
	return nil
}

// passphrase asks at the terminal, without echo. A pipe is refused: an agent can write to a pipe,
// and the first enrolment would be its own.
func passphrase(c *cobra.Command, prompt string) (secret.Value, error) {
	f, ok := c.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return secret.Value{}, &exit{code: exitUsage, text: "a passphrase is typed at a terminal, and standard input is none", hint: "run this yourself, in a terminal"}
	}
	fmt.Fprint(c.ErrOrStderr(), prompt)
	b, err := readPassword(f)
	fmt.Fprintln(c.ErrOrStderr())
	if err != nil {
		return secret.Value{}, err
	}
	return secret.NewValue(string(b)), nil
}

// readPassword reads one line without echo. A terminal that cannot be silenced is not read.
func readPassword(f *os.File) ([]byte, error) {
	b, err := term.ReadPassword(int(f.Fd()))
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the terminal was closed")
	}
	return b, err
}

// teller tells a person at the terminal that a call waits, and how to answer.
type teller struct{ w io.Writer }

func (t teller) Name() string { return "terminal" }

func (t teller) Notify(_ context.Context, q approval.Question) {
	b := bufio.NewWriter(t.w)
	fmt.Fprintf(b, "\n%s\n%s\n", strings.TrimRight(q.Show(), "\n"), "answer in another terminal: waldo approve "+q.ID+"   or   waldo deny "+q.ID)
	b.Flush()
}
