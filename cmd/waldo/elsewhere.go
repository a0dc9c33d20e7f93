package main

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/core/approval"
	"waldo/internal/core/approval/passkey"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

// tellElsewhere lists the questions of other waldos.
func tellElsewhere(w io.Writer, all []approval.Elsewhere) {
	var rows [][]string
	for _, e := range all {
		rows = append(rows, []string{e.Question.ID, string(e.Question.Capability), e.Peer,
			terminal.Ago(w, e.Question.Created.UTC().Format(time.RFC3339), time.Now()), e.Refused})
	}
	if len(rows) == 0 {
		return
	}
	var table strings.Builder
	terminal.Table(&table, []string{"ASKED ELSEWHERE", "CAPABILITY", "BY PEER", "ASKED", "LAST ANSWER"}, rows)
	display.Fprintf(w, "%s\n", terminal.Fit(w, table.String()))
}

// note says whose a question of another waldo is.
func note(w io.Writer, e approval.Elsewhere) {
	display.Fprintf(w, "Another waldo asks this, and the peer %s passed it on. The key of its first approver is\n%s.\n"+
		"The call is made there. Your answer is signed for that waldo alone, which decides whether it counts.\n\n",
		approval.Escape(e.Peer), approval.Escape(e.Root))
}

func showElsewhere(c *cobra.Command, g *cli.Context, e approval.Elsewhere) error {
	if g.JSON {
		return terminal.JSON(c.OutOrStdout(), e)
	}
	note(c.OutOrStdout(), e)
	terminal.Question(c.OutOrStdout(), e.Question)
	return nil
}

// answerElsewhere signs the answer to a question of another waldo. The call that waits for it here sends it.
func answerElsewhere(c *cobra.Command, g *cli.Context, k *approval.Service, e approval.Elsewhere, as string, yes bool,
	reason string, without []int,
) error {
	if len(without) > 0 {
		return exitcode.Mistake("answer it at the waldo that asks", "--without is for questions of this waldo")
	}
	if all, err := k.Approvers(c.Context()); err == nil {
		if err := typist(all, as, e.Question.ID); err != nil {
			return err
		}
	}
	note(c.ErrOrStderr(), e)
	by, _, err := ask(c, k, e.Question, true, as, yes, nil)
	if err != nil {
		return err
	}
	if err := k.SignElsewhere(c.Context(), by, e, yes, reason); err != nil {
		return refusedAnswer(err)
	}
	became, err := awaitTaken(c.Context(), k, e.Question.ID)
	if err != nil {
		return err
	}
	if g.JSON {
		return terminal.JSON(c.OutOrStdout(), map[string]any{"approval_id": e.Question.ID, "yes": yes, "by": by.Name(),
			"became": became})
	}
	word := "no"
	if yes {
		word = "yes"
	}
	display.Fprintf(c.OutOrStdout(), "%s: %s, by %s; %s\n", e.Question.ID, word, by.Name(), became)
	return nil
}

// checkKey refuses a text that is not the key of an approver, as waldo approve --list --json prints it.
func checkKey(text string) error {
	_, err := passkey.Parse(text)
	if pub, herr := hex.DecodeString(text); err == nil || herr == nil && len(pub) == ed25519.PublicKeySize {
		return nil
	}
	return exitcode.Mistake("give it as key of waldo approve --list --json at the other waldo: not its fingerprint",
		"a public key is 64 hexadecimal digits, or the text of a passkey; this text has %d characters", len(text))
}

// takes is how long waldo approve waits to hear what became of its answer.
const takes = 15 * time.Second

// awaitTaken waits until the waldo that asked has an answer, and says what became of it.
func awaitTaken(ctx context.Context, k *approval.Service, question string) (string, error) {
	for end := time.Now().Add(takes); time.Now().Before(end); {
		e, err := k.Elsewhere(ctx, question)
		switch {
		case err != nil:
			return "the question waits no longer", nil
		case e.Refused != "":
			return "", &exitcode.Exit{Code: exitcode.Denied, Text: "the waldo that asked did not take the answer: " +
				approval.Escape(e.Refused), Hint: "its first approver enrols you there with: waldo approve --enroll NAME --public-key KEY"}
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
	return "it is sent with the call that waits, or with the next one that names its task", nil
}
