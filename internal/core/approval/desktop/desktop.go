// Package desktop shows a notification on this machine's desktop for each approval question. It carries no answer.
package desktop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/model/contract"
)

// Notifier shows a notification if approval.carriers names desktop.
type Notifier struct {
	rules func() contract.Approvals
	slots chan struct{}
	on    string                                      // the operating system, as runtime.GOOS
	find  func(program string) (path string, ok bool) // of the desktop
}

// How many notifications are sent at a time, and how long one may take.
const (
	most     = 4
	patience = 10 * time.Second
)

// places are where the programs are looked for: folders of the system, and none that PATH names.
var places = []string{"/usr/bin/", "/bin/", "/usr/local/bin/", "/run/current-system/sw/bin/"}

// New returns a notifier that reads the rules at each question.
func New(rules func() contract.Approvals) *Notifier {
	return &Notifier{rules, make(chan struct{}, most), runtime.GOOS, func(program string) (string, bool) {
		for _, folder := range places {
			if path, err := exec.LookPath(folder + program); err == nil {
				return path, true
			}
		}
		return "", false
	}}
}

// Name satisfies approval.Notifier.
func (n *Notifier) Name() string { return contract.Desktop }

// Notify shows that a question waits. It fails in waldo's own messages alone.
func (n *Notifier) Notify(ctx context.Context, q approval.Question) {
	if !slices.Contains(n.rules().Carriers, contract.Desktop) {
		return
	}
	select {
	case n.slots <- struct{}{}:
		defer func() { <-n.slots }()
	default:
		slog.Warn("no desktop notification: too many are being sent", "approval", q.ID)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	argv, err := n.command(q)
	if err == nil {
		err = exec.CommandContext(ctx, argv[0], argv[1:]...).Run()
	}
	if err != nil {
		slog.Warn("no desktop notification", "approval", q.ID, "why", err)
	}
}

// command returns the program that shows the notification of a question, with its arguments.
func (n *Notifier) command(q approval.Question) ([]string, error) {
	program := map[string]string{"linux": "notify-send", "darwin": "osascript"}[n.on]
	if program == "" {
		return nil, errors.New("waldo knows no notifications of this system: use approval.notify")
	}
	path, ok := n.find(program)
	if !ok {
		return nil, fmt.Errorf("%s is not installed", program)
	}
	head, body := text(q)
	if n.on == "darwin" { // the texts are arguments of the script, and no part of it
		return []string{path, "-e", "on run argv", "-e",
			"display notification (item 2 of argv) with title (item 1 of argv)", "-e", "end run", head, body}, nil
	}
	return []string{path, "--app-name=waldo", "--urgency=critical", "--", head, body}, nil
}

// text is the title and the body. Neither holds a word that an agent chose: the capability is spelled as contracts and
// tools are, and shown only in that form. Servers of notifications read < and & as markup, which that form lacks.
func text(q approval.Question) (head, body string) {
	what := "a call"
	if q.Capability.Named() && len(q.Capability) <= 64 {
		what = string(q.Capability)
	}
	return "waldo: a call waits for you", fmt.Sprintf("%s, danger %d of 3. Open the console, or run: waldo approvals %s", what,
		q.Danger, q.ID)
}
