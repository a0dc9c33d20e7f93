package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/cmd/waldo/enrolling"
	"waldo/internal/app"
	"waldo/internal/app/health"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/core/approval"
	"waldo/internal/core/approval/passkey"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
)

func newApprovals(g *cli.Context) *cobra.Command {
	var whole, watch bool
	c := &cobra.Command{
		Use: "approvals [ID]", Short: "List the pending approvals", Args: cobra.MaximumNArgs(1),
		Long: "Lists what waits for a human. With an id, or with -v, shows the whole question with its arguments.\n" +
			"With --watch, prints each new question and how it ended; with --json, one object a line.",
		Example: "  waldo approvals\n  waldo approvals -v\n  waldo approvals a_…\n  waldo approvals --json\n" +
			"  waldo approvals --watch --json",
		RunE: func(c *cobra.Command, args []string) error {
			k, done, err := g.OpenApprovals()
			if err != nil {
				return err
			}
			defer done()
			if watch && len(args) == 1 {
				return exitcode.Mistake("leave the id out", "--watch is for all questions")
			}
			if watch {
				return watchApprovals(c, k, whole, g.JSON)
			}
			open, err := k.Pending(c.Context())
			if err != nil {
				return err
			}
			there, err := k.AllElsewhere(c.Context())
			if err != nil {
				return err
			}
			if len(args) == 1 {
				if e, err := k.Elsewhere(c.Context(), args[0]); err == nil {
					return showElsewhere(c, g, e)
				}
				open = slices.DeleteFunc(open, func(q approval.Question) bool { return q.ID != args[0] })
				if len(open) == 0 {
					if _, state, err := k.Question(c.Context(), args[0]); err == nil {
						return &exitcode.Exit{Code: exitcode.Waiting, Text: args[0] + " is not waiting: " + stands(state),
							Hint: "who answered, and when: waldo explain " + args[0]}
					}
					return exitcode.Mistake("waldo approvals lists what waits", "no pending approval %q", args[0])
				}
			}
			if g.JSON {
				all := []waiting{}
				for _, q := range open {
					all = append(all, waiting{Question: q})
				}
				if len(args) == 0 {
					for _, e := range there {
						all = append(all, waiting{e.Question, e.Peer})
					}
				}
				return terminal.JSON(c.OutOrStdout(), all)
			}
			display.Fprintf(c.ErrOrStderr(), "%s\n", health.Standing())
			if len(open)+len(there) == 0 {
				display.Fprintf(c.ErrOrStderr(), "no pending approvals\n")
			}
			if len(args) == 0 {
				tellElsewhere(c.OutOrStdout(), there)
			}
			if whole || len(args) == 1 {
				for _, q := range open {
					terminal.Question(c.OutOrStdout(), k.Since(c.Context(), q))
					display.Fprintf(c.OutOrStdout(), "\n")
				}
				return nil
			}
			tellApprovals(c.OutOrStdout(), open)
			return nil
		},
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "go on, and print new questions as they come")
	c.Flags().BoolVarP(&whole, "verbose", "v", false, "show each question whole")
	return c
}

// waiting is a question in JSON.
type waiting struct {
	approval.Question
	Peer string `json:"peer,omitempty"` // who passed it on; empty: this waldo asks
}

// tellApprovals lists questions, oldest first.
func tellApprovals(w io.Writer, open []approval.Question) {
	var rows [][]string
	for _, q := range open {
		rows = append(rows, []string{q.ID, string(q.Capability), fmt.Sprint(q.Danger), string(q.Principal),
			terminal.Ago(w, q.Created.UTC().Format(time.RFC3339), time.Now()), cmp.Or(q.Role, "any"),
			terminal.Brief(string(q.Args), 60)})
	}
	var table strings.Builder
	terminal.Table(&table, []string{"ID", "CAPABILITY", "DANGER", "PRINCIPAL", "ASKED", "ROLE", "ARGUMENTS"}, rows)
	if len(rows) > 0 {
		table.WriteString("\nwaldo approvals ID shows the whole question.\n")
	}
	display.Fprintf(w, "%s", terminal.Fit(w, table.String()))
}

func newApprove(g *cli.Context) *cobra.Command {
	var as, enroll, public, revoke string
	var roles []string
	var list, withPasskey bool
	var without string
	c := &cobra.Command{
		Use: "approve ID | --enroll NAME [--passkey]", Short: "Answer a question with yes, or enrol an approver",
		Long: "Answers with an approver's key, which is sealed with a passphrase. Being the same user as the agent proves\n" +
			"nothing: the agent does not hold the passphrase. The first approver is enrolled at a terminal; every later one\n" +
			"needs the first one's passphrase as well.",
		Example: "  waldo approve --enroll alice --role manager\n  waldo approve --enroll bob --role manager --passkey\n" +
			"  waldo approve a_… --as alice\n  waldo approve a_… --without 3,7",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case list && len(args) == 0 && enroll == "" && revoke == "":
				return passkeys(c, g).List(c)
			case withPasskey && revoke == "" && !list && (enroll == "" || len(args) == 0):
				return passkeys(c, g).Enrol(c, cmp.Or(enroll, strings.Join(args, "")), roles)
			case enroll != "" && len(args) == 0:
				return enrol(c, g, enroll, roles, public)
			case revoke != "" && len(args) == 0:
				return revokeApprover(c, g, revoke)
			case len(args) == 1 && enroll == "" && revoke == "":
				rows, err := rowNumbers(without)
				if err != nil {
					return err
				}
				return answer(c, g, args[0], as, true, "", rows)
			}
			return exitcode.Mistake("waldo approvals lists the ids", "give the id of a question, or --enroll NAME")
		},
	}
	c.Flags().StringVar(&as, "as", "", "`NAME` of the approver (default: the only one enrolled)")
	c.Flags().StringVar(&without, "without", "", "strike out these `ROWS` of a program's held calls, by their numbers")
	c.Flags().StringVar(&enroll, "enroll", "", "make a key for a new approver `NAME`")
	c.Flags().StringVar(&public, "public-key", "",
		"with --enroll, `KEY` of an approver of another waldo, who answers there over A2A: key of approve --list --json")
	c.Flags().BoolVar(&withPasskey, "passkey", false,
		"with --enroll, make a passkey in the browser: prints a secret for the console's page /enrol")
	c.Flags().BoolVar(&withPasskey, "enrol", false, "the earlier name of --enroll NAME --passkey")
	_ = c.Flags().MarkHidden("enrol")
	c.Flags().StringVar(&revoke, "revoke", "", "end the right of `NAME` to answer")
	c.Flags().BoolVar(&list, "list", false, "print who can answer, with the fingerprint of each key")
	c.Flags().StringSliceVar(&roles, "role", nil, "`ROLE` of the new approver, as contracts name it")
	return c
}

func newDeny(g *cli.Context) *cobra.Command {
	var as, reason string
	c := &cobra.Command{
		Use: "deny ID", Short: "Answer a question with no", Example: "  waldo deny a_… --reason 'not before Monday'",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return answer(c, g, args[0], as, false, reason, nil) },
	}
	c.Flags().StringVar(&as, "as", "", "`NAME` of the approver (default: the only one enrolled)")
	c.Flags().StringVar(&reason, "reason", "", "`WHY`, shown to the agent")
	return c
}

func answer(c *cobra.Command, g *cli.Context, question, as string, yes bool, reason string, without []int) error {
	at, cfg, err := g.ForQuestions()
	if err != nil {
		return err
	}
	k, done, err := app.ApprovalsOnRecord(c.Context(), at, cfg)
	if err != nil {
		return err
	}
	defer done()
	if e, err := k.Elsewhere(c.Context(), question); err == nil {
		return answerElsewhere(c, g, k, e, as, yes, reason, without)
	}
	q, state, err := k.Question(c.Context(), question)
	if err != nil {
		return refusedAnswer(err)
	}
	if late, is := over[state]; is {
		return errors.Join(tooLate(c, g, q, yes, late.Code, late.Text), &exitcode.Exit{Code: exitcode.Waiting,
			Text: question + ": " + late.Code + ": " + late.Text, Hint: "the next call asks anew"})
	}
	if state != approval.Pending && (yes || state != approval.Yes && state != approval.Void) {
		return &exitcode.Exit{Code: exitcode.Waiting, Text: fmt.Sprintf("%s is not waiting: %s", question, ended(state))}
	}
	if state == approval.Yes {
		display.Fprintf(c.ErrOrStderr(), "%s was answered yes and is not used yet; a no takes that back\n", question)
	}
	if all, err := k.Approvers(c.Context()); err == nil { // before the question is shown
		if err := typist(all, as, question); err != nil {
			return err
		}
	}
	struck, err := struckOut(c, k, q, yes, without)
	if err != nil {
		return err
	}
	if no := q.Strikes(struck); yes && no != nil { // before the question is shown
		return refusedAnswer(no)
	}
	by, struck, err := ask(c, k, q, asksUnder(g, q), as, yes, struck)
	if err != nil {
		return err
	}
	if err := k.Answer(c.Context(), by, q, yes, reason, struck...); err != nil {
		if no := (*approval.Refused)(nil); errors.As(err, &no) &&
			(no.Reason.Code == "approval.gone" || no.Reason.Code == "approval.expired") {
			// The caller can leave while the passphrase is typed.
			err = errors.Join(tooLate(c, g, q, yes, no.Reason.Code, "the caller is gone"), err)
		}
		return refusedAnswer(err)
	}
	word := "no"
	if yes {
		word = "yes"
	}
	if g.JSON {
		return terminal.JSON(c.OutOrStdout(), map[string]any{"approval_id": question, "yes": yes, "by": by.Name()})
	}
	if len(struck) > 0 {
		word = "yes without " + approval.NameRows(struck)
	}
	display.Fprintf(c.OutOrStdout(), "%s: %s, by %s\n", question, word, by.Name())
	return nil
}

// redraws is how often a question is printed again because the window got another size.
const redraws = 5

// ask shows a question and reads who answers it. From before the question until then the kernel keeps other programs
// off the terminal, as far as it does that. An answer counts for a window that kept its size.
func ask(
	c *cobra.Command, k *approval.Service, q approval.Question, current bool, as string, yes bool, struck []int,
) (approval.Signer, []int, error) {
	w := c.ErrOrStderr()
	for _, side := range []any{w, c.InOrStdin()} {
		if !terminal.OnScreen(side) {
			continue
		}
		release, err := terminal.Hold(side.(*os.File))
		defer release()
		if err != nil && side == any(w) {
			display.Fprintf(w, "note: other programs can write to this terminal while it shows the question: %v\n", err)
		}
	}
	shown := k.Since(c.Context(), q)
	rows := yes && q.Calls() != nil && len(struck) == 0 // a person can still strike some out
	for range redraws {
		drawn := terminal.Question(w, shown.Striking(struck))
		display.Fprintf(w, "\n")
		if !current {
			display.Fprintf(w,
				"note: this question was asked under another configuration than the one that is read here. If that one changed,\n"+
					"no call can use the answer: the next call asks anew.\n")
		}
		if rows {
			var err error
			if struck, err = askRows(c, k, q); err != nil {
				return nil, nil, err
			}
			if no := q.Strikes(struck); no != nil {
				return nil, nil, refusedAnswer(no)
			}
			if rows = false; len(struck) > 0 {
				continue
			}
		}
		by, err := agree(c, k, q, as, yes)
		if err != nil || !drawn.Resized() {
			return by, struck, err
		}
		display.Fprintf(w, "\nThe window has another size now, so the answer does not count. The question again:\n\n")
	}
	return nil, nil, &exitcode.Exit{Code: exitcode.Waiting, Text: "the window got another size each time; nothing was answered",
		Hint: "run it again in a window that keeps its size"}
}

// agree reads the answer to a question that is shown: for a yes to danger 3 the last word of the capability, then a
// passphrase.
func agree(c *cobra.Command, k *approval.Service, q approval.Question, as string, yes bool) (approval.Signer, error) {
	all, err := k.Approvers(c.Context())
	if err != nil {
		return nil, err
	}
	if in, ok := c.InOrStdin().(*os.File); ok && terminal.OnScreen(in) && len(all) > 0 && yes && q.Danger >= approval.Typed {
		display.Fprintf(c.ErrOrStderr(), "danger 3: type the last word of the capability: ")
		word, err := terminal.ReadLine(c.Context(), in)
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(string(word)) != q.Capability.Word() {
			return nil, &exitcode.Exit{Code: exitcode.Denied, Text: "approval.word: the word that was typed is not the last one of " +
				"the capability's name; nothing was answered", Hint: "is it the call that you meant? waldo approvals " + q.ID}
		}
	}
	return signer(c.Context(), c, k, as)
}

// ended says in words why a question takes no answer.
func ended(s approval.State) string {
	switch s {
	case approval.Yes:
		return "it was answered yes; waldo deny takes that back"
	case approval.No:
		return "it was answered no"
	case approval.Declined:
		return "the agent's host declined it for its person"
	case approval.Withdrawn:
		return "its caller gave the call up"
	case approval.Used:
		return "it was answered yes, and a call has used that"
	}
	return string(s)
}

// over is why an answer in these states of its question comes too late. It is recorded.
var over = map[approval.State]call.Reason{
	approval.Gone:      {Code: "approval.gone", Text: "the caller is gone: the session that asked has ended"},
	approval.Expired:   {Code: "approval.expired", Text: "the caller is gone: the time of the question is over"},
	approval.Withdrawn: {Code: "approval.withdrawn", Text: "its caller gave the call up"},
}

// refusedAnswer gives an answer that was not taken the exit code of a contract's refusal, and one to no
// question that of usage.
func refusedAnswer(err error) error {
	var r *approval.Refused
	if errors.As(err, &r) && r.Reason.Code == "approval.unknown" {
		return exitcode.Mistake("waldo approvals lists what waits", "%s", reasonLine(r))
	}
	if errors.As(err, &r) {
		hint := "waldo approvals lists what waits"
		if r.Reason.Code == approval.Unsigned {
			hint = "the first approver signs the removal with: waldo prune"
		}
		return &exitcode.Exit{Code: exitcode.Denied, Text: reasonLine(r), Hint: hint}
	}
	return err
}

func reasonLine(r *approval.Refused) string { return r.Reason.Code + ": " + r.Reason.Text }

// approverName returns the approver who answers: as, or the only one.
func approverName(ctx context.Context, k *approval.Service, as string) (string, error) {
	all, err := k.Approvers(ctx)
	switch {
	case err != nil:
		return "", err
	case len(all) == 0:
		return "", &exitcode.Exit{
			Code: exitcode.Usage, Text: "no approver is enrolled", Hint: "at a terminal: waldo approve --enroll NAME",
		}
	}
	return cmp.Or(as, all[0].Name), ambiguous(all, as)
}

// ambiguous returns a mistake if nobody is named and several can answer.
func ambiguous(all []approval.Approver, as string) error {
	if as == "" && len(all) > 1 {
		return exitcode.Mistake("--as NAME", "there are %d approvers: name the one who answers", len(all))
	}
	return nil
}

// typist returns an error unless the approver as, or the only one, answers at a terminal.
func typist(all []approval.Approver, as, question string) error {
	for _, a := range all {
		if key, err := passkey.Parse(a.Key); err == nil && (a.Name == as || as == "" && len(all) == 1) {
			return exitcode.Mistake(key.Origin+"/approvals/"+question, "%s has a passkey, and answers in the console", a.Name)
		}
	}
	return ambiguous(all, as)
}

// signer opens the key of the approver as, or of the only one.
func signer(ctx context.Context, c *cobra.Command, k *approval.Service, as string) (approval.Signer, error) {
	as, err := approverName(ctx, k, as)
	if err != nil {
		return nil, err
	}
	return unseal(c, k, as)
}

// tries is how often a person can type the passphrase of a key.
const tries = 3

// unseal opens the key of an approver with a passphrase typed at the terminal.
func unseal(c *cobra.Command, k *approval.Service, name string) (approval.Signer, error) {
	for n := 1; ; n++ {
		pass, err := passphrase(c, "passphrase of "+name+": ")
		if err != nil {
			return nil, err
		}
		by, err := k.Unseal(name, pass)
		switch {
		case err == nil:
			return by, nil
		case n == tries || !errors.Is(err, approval.ErrPassphrase):
			return nil, &exitcode.Exit{Code: exitcode.Waiting, Err: err, Hint: "nothing was signed; run it again"}
		}
		display.Fprintf(c.ErrOrStderr(), "%v; type it again\n", err)
	}
}

func enrol(c *cobra.Command, g *cli.Context, name string, roles []string, public string) error {
	if public != "" {
		if err := checkKey(public); err != nil {
			return err
		}
	}
	k, done, err := onRecord(c.Context(), g)
	if err != nil {
		return err
	}
	defer done()
	all, err := passkeys(c, g).Others(c.Context(), k, name)
	if err != nil {
		return err
	}
	var by approval.Signer
	if len(all) > 0 {
		if by, err = passkeys(c, g).Root(c, k, all[0].By, "the enrolment of "+name+" with a passphrase"); err != nil {
			return err
		}
	}
	if public != "" {
		if by == nil {
			return exitcode.Mistake("at a terminal: waldo approve --enroll NAME", "the first approver needs a key here")
		}
		a, err := k.EnrollPublic(c.Context(), name, roles, public, by)
		if err != nil {
			return refusedAnswer(err)
		}
		display.Fprintf(c.OutOrStdout(), "enrolled %s, key %s\n", a.Name, a.Fingerprint())
		return nil
	}
	var trusted []approval.Configuration
	if by == nil {
		if trusted, err = enrolling.Trusted(c.ErrOrStderr(), k.Store.Dir()); err != nil {
			return err
		}
	}
	pass, err := passphrase(c, fmt.Sprintf("new passphrase for %s (%d characters or more): ", name,
		approval.MinPassphrase))
	if err != nil {
		return err
	}
	if len(pass.Reveal()) < approval.MinPassphrase {
		return exitcode.Mistake("run it again with a longer one",
			"the passphrase has fewer than %d characters; nothing was changed", approval.MinPassphrase)
	}
	again, err := passphrase(c, "the same again: ")
	if err != nil {
		return err
	}
	if pass.Reveal() != again.Reveal() {
		return exitcode.Mistake("", "the two passphrases differ; nothing was changed")
	}
	a, err := k.Enroll(c.Context(), name, roles, pass, by, trusted...)
	if err != nil {
		return refusedAnswer(err)
	}
	display.Fprintf(c.OutOrStdout(), "enrolled %s, key %s\n", a.Name, a.Fingerprint())
	if by == nil {
		enrolling.TellFirst(c.ErrOrStderr(), a)
	}
	return nil
}

// passkeys are the commands that need an approver's passkey, or list them.
func passkeys(c *cobra.Command, g *cli.Context) enrolling.Waldo {
	return enrolling.Waldo{JSON: g.JSON, Refused: refusedAnswer,
		Look:      func() (*approval.Service, func() error, error) { return g.OpenApprovals() },
		Approvals: func() (*approval.Service, func() error, error) { return onRecord(c.Context(), g) },
		Signer: func(k *approval.Service, name string) (approval.Signer, error) {
			return signer(c.Context(), c, k, name)
		}}
}

func revokeApprover(c *cobra.Command, g *cli.Context, name string) error {
	k, done, err := onRecord(c.Context(), g)
	if err != nil {
		return err
	}
	defer done()
	all, err := k.Approvers(c.Context())
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return exitcode.Mistake("", "no approver is enrolled; there is nothing to revoke")
	}
	// tried and recorded all the same
	if !slices.ContainsFunc(all, func(a approval.Approver) bool { return a.Name == name }) {
		display.Fprintf(c.ErrOrStderr(), "note: no approver is called %s; waldo approve --list prints who can answer\n", name)
	}
	by, err := passkeys(c, g).Root(c, k, all[0].By, "the end of the right of "+name)
	if err != nil {
		return err
	}
	if err := k.Revoke(c.Context(), name, by); err != nil {
		return refusedAnswer(err)
	}
	display.Fprintf(c.OutOrStdout(), "revoked %s\n", name)
	return nil
}
