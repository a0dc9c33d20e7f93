// Package enrolling lists who can answer questions, and enrols passkeys.
package enrolling

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"waldo/internal/app"
	"waldo/internal/cli/exitcode"
	"waldo/internal/core/approval"
	"waldo/internal/core/approval/enrolment"
	"waldo/internal/core/approval/passkey"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

// Waldo holds the parts of waldo that the commands need.
type Waldo struct {
	Look      func() (k *approval.Service, done func() error, err error)
	Approvals func() (k *approval.Service, done func() error, err error) // on record
	Signer    func(k *approval.Service, name string) (approval.Signer, error)
	Refused   func(error) error
	JSON      bool
}

// List prints who can answer, the first approver first.
func (w Waldo) List(c *cobra.Command) error {
	k, done, err := w.Look()
	if err != nil {
		return err
	}
	defer done()
	all, err := k.Approvers(c.Context())
	if err != nil {
		return w.Refused(err)
	}
	if w.JSON {
		return terminal.JSON(c.OutOrStdout(), all)
	}
	for _, a := range all {
		roles, kind := approval.Escape(strings.Join(a.Roles, ", ")), ""
		if len(a.Roles) == 0 {
			roles = "none"
		}
		if p, err := passkey.Parse(a.Key); err == nil {
			kind = "  passkey at " + p.Origin
		}
		display.Fprintf(c.OutOrStdout(), "%s  key %s  roles %s  enrolled by %s at %s%s\n", a.Name, a.Fingerprint(),
			roles, a.By, a.At, kind)
	}
	if len(all) == 0 {
		display.Fprintf(c.ErrOrStderr(), "no approver is enrolled\nhint: at a terminal: waldo approve --enroll NAME\n")
	}
	return nil
}

// Enrol enrols a passkey: it prints a secret on the terminal, waits for the browser that has it, and asks the person
// at the terminal about the key that came back.
func (w Waldo) Enrol(c *cobra.Command, name string, roles []string) error {
	in, isFile := c.InOrStdin().(*os.File)
	out, isOut := c.ErrOrStderr().(*os.File)
	if !isFile || !isOut || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return exitcode.Mistake("run this yourself, in a terminal",
			"the secret of an enrolment is printed only on a terminal")
	}
	if name == "" {
		name = own()
	}
	k, done, err := w.Approvals()
	if err != nil {
		return err
	}
	defer done()
	all, err := w.Others(c.Context(), k, name)
	if err != nil {
		return err
	}
	by, root, inBrowser := name, approval.Signer(nil), false
	if len(all) > 0 {
		by = all[0].By
		i := slices.IndexFunc(all, func(a approval.Approver) bool { return a.Name == by })
		if inBrowser = i >= 0 && passkey.Is(all[i].Key); inBrowser {
			display.Fprintf(out, "note: the first approver, %s, signs this in the console, too\n\n", by)
		} else if root, err = w.Signer(k, by); err != nil {
			return err
		}
	}
	invite := enrolment.Invite{Name: name, Roles: append([]string{}, roles...), By: by}
	if by == name {
		if invite.Trusted, err = Trusted(out, k.Store.Dir()); err != nil {
			return err
		}
	}
	if _, err := k.NewApprover(name, roles, "", by, invite.Trusted...); err != nil {
		return exitcode.Mistake("as in waldo approve --enroll alice --passkey", "%v", err)
	}
	secret, err := enrolment.NewInvite(c.Context(), k.Store, invite)
	if err != nil {
		return err
	}
	defer func() { _ = enrolment.ForgetInvite(context.WithoutCancel(c.Context()), k.Store, secret) }()
	if by == name {
		display.Fprintf(out, "note: no approver is enrolled. This passkey becomes the first approver.\n\n")
	}
	display.Fprintf(out,
		"Open the page /enrol of the console (waldo console, or waldo serve --listen) by the name localhost,\n"+
			"and type this secret there within %v. It is shown this once:\n\n  %s\n\nwaiting for the browser … (Ctrl-C ends)\n",
		enrolment.InviteLife, secret)
	wait, cancel := context.WithTimeout(c.Context(), enrolment.InviteLife)
	defer cancel()
	a, assertion, err := enrolment.Enrolled(wait, k.Store, secret, invite)
	if wait.Err() != nil && c.Context().Err() == nil {
		return &exitcode.Exit{Code: exitcode.Waiting, Text: "no browser came with the secret in time; nothing was changed"}
	}
	if err != nil {
		return &exitcode.Exit{Code: exitcode.Denied, Err: err}
	}
	key, err := passkey.Parse(a.Key)
	if err != nil {
		return err
	}
	display.Fprintf(out, "\nA passkey came from the browser:\n  approver  %s\n  page      %s\n  key       %s\n"+
		"The browser shows the same key. ", a.Name, key.Origin, a.Fingerprint())
	if yes, err := ask(c.Context(), in, out); err != nil || !yes {
		return &exitcode.Exit{Code: exitcode.Waiting, Text: "not enrolled; nothing was changed", Err: err}
	}
	switch {
	case root != nil:
		assertion, err = root.Sign(a.Message())
	case inBrowser:
		display.Fprintf(out, "Now %s signs: the page /enrol, Sign as the first approver, the same secret. waiting for the "+
			"first approver …\n", by)
		assertion, err = enrolment.RootSigned(wait, k.Store, secret)
	}
	if err != nil {
		return err
	}
	if err := k.EnrollSigned(c.Context(), a, assertion); err != nil {
		return w.Refused(err)
	}
	display.Fprintf(c.OutOrStdout(), "enrolled %s, passkey %s\n", a.Name, a.Fingerprint())
	if by == name {
		TellFirst(out, a)
	}
	return nil
}

// Others returns who is enrolled already, and refuses a name that one of them has.
func (w Waldo) Others(ctx context.Context, k *approval.Service, name string) ([]approval.Approver, error) {
	all, err := k.Approvers(ctx)
	if err != nil {
		return nil, w.Refused(err)
	}
	if slices.ContainsFunc(all, func(a approval.Approver) bool { return a.Name == name }) {
		return nil, exitcode.Mistake("choose another NAME; waldo approve --list prints who can answer",
			"%s is enrolled already", name)
	}
	return all, nil
}

// Trusted shows and returns the configurations that the first approver signs with its own enrolment.
func Trusted(w io.Writer, state string) ([]approval.Configuration, error) {
	trusted, err := app.TrustedNow(state)
	if err != nil || len(trusted) == 0 {
		return nil, err
	}
	display.Fprintf(w, "The first approver signs these configurations, as they were trusted:\n")
	for _, c := range trusted {
		display.Fprintf(w, "  %s (%s)\n", approval.Escape(c.File), c.Digest)
	}
	return trusted, nil
}

// TellFirst says how to hold the first approver's place.
func TellFirst(w io.Writer, a approval.Approver) {
	display.Fprintf(w, "This is the first approver. Write its key into waldo.yaml, so that no other can take its place:\n"+
		"  approval: {root: \"%s\"}\nIf the file has approval: already, write root: below it. Then: waldo trust\n"+
		"From now on no configuration loads that %s has not signed: waldo trust asks for the signature, also for a file that\n"+
		"--config names.\n",
		a.Fingerprint(), a.Name)
}

// Root returns the first approver as a signer: by passphrase at this terminal, or by passkey in the console. It shows
// the text what before it signs.
func (w Waldo) Root(c *cobra.Command, k *approval.Service, name, what string) (approval.Signer, error) {
	all, err := k.Approvers(c.Context())
	if err != nil {
		return nil, w.Refused(err)
	}
	i := slices.IndexFunc(all, func(a approval.Approver) bool { return a.Name == name })
	if i < 0 || !passkey.Is(all[i].Key) {
		return w.Signer(k, name)
	}
	return InBrowser(c, k, name, what)
}

// InBrowser returns the first approver, who signs with a passkey in the console, with a secret that is printed on a
// terminal alone.
func InBrowser(c *cobra.Command, k *approval.Service, name, what string) (approval.Signer, error) {
	out, isOut := c.ErrOrStderr().(*os.File)
	if !isOut || !term.IsTerminal(int(out.Fd())) {
		return nil, exitcode.Mistake("run this yourself, in a terminal",
			"the secret for a signature is printed only on a terminal")
	}
	return enrolment.BrowserSigner{Ctx: c.Context(), Root: name, What: what, Store: k.Store, Tell: func(secret string) {
		display.Fprintf(out, "The first approver, %s, signs with a passkey: open the page /enrol of the console\n"+
			"(waldo console, or waldo serve --listen) by the name localhost, go to Sign as the first approver, and type\n"+
			"this secret there within %v:\n\n  %s\n\nwaiting for the browser … (Ctrl-C ends)\n", name, enrolment.InviteLife,
			secret)
	}}, nil
}

// own returns the name of this user, as far as an approver can have it.
func own() string {
	name := "me"
	if u, err := user.Current(); err == nil {
		name = strings.Trim(strings.ToLower(u.Username), "._-")
		if i := strings.LastIndexAny(name, "\\/"); i >= 0 { // DOMAIN\user
			name = name[i+1:]
		}
	}
	return name
}

// ask reads one line: the whole word yes or no.
func ask(ctx context.Context, in, out *os.File) (bool, error) {
	for range 3 {
		display.Fprintf(out, "Enrol it? (yes/no) ")
		var word string
		read := make(chan error, 1)
		go func() {
			_, err := fmt.Fscanln(in, &word)
			read <- err
		}()
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-read:
		}
		if yes, ok := approval.Verdict(word); ok {
			return yes, nil
		}
	}
	return false, nil
}
