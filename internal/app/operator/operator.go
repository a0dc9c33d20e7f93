// Package operator carries out the requests of the console over one state directory. It satisfies console.Backend. It
// reads the log and the database, where every waldo of the directory meets, so it needs no daemon.
package operator

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"waldo/internal/app/control"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/core/policy"
	"waldo/internal/frontend/console"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/storage/database"
	"waldo/internal/storage/sandboxes"
	queue "waldo/internal/storage/webhook"
)

// Options are the parts of an application that the console works on.
type Options struct {
	Store     *database.Store
	Log       *audit.Log
	Approvals *approval.Service
	Config    func() *contract.Config // in force
	Webhooks  *queue.Queue
	Policy    func() *policy.Policy
	// Compile compiles a changed text of the configuration, as a reload would.
	Compile func(text []byte) (*policy.Policy, contract.Problems, error)
	Tools   func(server string) int                          // accepted definitions
	Pins    func(ctx context.Context) ([]console.Pin, error) // looks at every server
	Forget  func(ctx context.Context, name string) error     // ends what a stopped user shares beside its sessions
	Owner   string                                           // of the sandboxes
	Anchors func(ctx context.Context) ([]audit.Anchor, error)
	Root    string // of the first approver, besides the configuration's
}

// Operator satisfies console.Backend.
type Operator struct {
	o         Options
	sandboxes *sandboxes.Manager
	index     *index
	end       context.CancelFunc
	work      sync.WaitGroup
	drafts    drafts
	decoy     string // of this process, for logins by names without a passkey
	pinned    pinned
	whatIf    sync.Mutex // one comparison at a time
}

// New returns an operator. It begins to read the log at its first use; Close ends that.
func New(o Options) *Operator {
	ctx, end := context.WithCancel(context.Background())
	p := &Operator{o: o, sandboxes: sandboxes.New(o.Store, time.Now), end: end, drafts: drafts{by: map[string]draft{}},
		decoy: secret()}
	p.index = newIndex(func() {
		p.work.Go(func() { p.index.follow(ctx, audit.Dir(o.Store.Dir())) })
		p.work.Go(func() { p.index.watch(ctx, o.Approvals) })
	})
	return p
}

// Close ends the reading of the log.
func (p *Operator) Close() error {
	p.end()
	p.work.Wait()
	return nil
}

// KindConsole is the kind of record that each action of the console leaves in the log.
const KindConsole = "console"

// Audit satisfies console.Backend.
func (p *Operator) Audit(ctx context.Context, who console.Who, e console.Event) error {
	body := struct {
		console.Event
		Principal call.Principal `json:"principal"`
		Role      string         `json:"role"`
		Login     string         `json:"login,omitempty"` // digest of the login's id
		Origin    string         `json:"origin,omitempty"`
	}{e, who.Principal, who.Role.String(), "", who.Origin}
	if who.Session != "" {
		body.Login = digest(who.Session)[:16]
	}
	body.Target, body.Why = display.Clip(body.Target, 512), display.Clip(body.Why, 512)
	return control.RecordSync(context.WithoutCancel(ctx), p.o.Log, KindConsole, body)
}

func digest(s string) string {
	d := sha256.Sum256([]byte(s))
	return hex.EncodeToString(d[:])
}

// secret returns 128 random bits in letters that are easy to type.
func secret() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}

// links is the bucket of one-time login links: the digest of a token to a link.
const links = "console-links"

// LinkLife is how long a login link is good for.
const LinkLife = 10 * time.Minute

type link struct {
	Role    string    `json:"role"`
	Expires time.Time `json:"expires"`
}

// NewLink makes a one-time login token. Every writer of the state directory can make one. A login can do
// as much as the command line, and cannot approve without a passkey.
func NewLink(ctx context.Context, s *database.Store, role console.Role) (string, error) {
	old, err := s.List(ctx, links)
	if err != nil {
		return "", err
	}
	for name, text := range old {
		var l link
		if json.Unmarshal([]byte(text), &l) != nil || time.Now().After(l.Expires) {
			if err := s.Delete(ctx, links, name); err != nil {
				return "", err
			}
		}
	}
	b, err := json.Marshal(link{role.String(), time.Now().Add(LinkLife)})
	if err != nil {
		return "", err
	}
	token := secret()
	return token, s.Put(ctx, links, digest(token), string(b))
}

// UseLink satisfies console.Backend. One request gets the role of a token.
func (p *Operator) UseLink(ctx context.Context, token string) (console.Role, error) {
	var l link
	err := p.o.Store.Modify(ctx, links, digest(strings.TrimSpace(token)), func(old string, ok bool) (string, bool, error) {
		l = link{}
		if ok && json.Unmarshal([]byte(old), &l) != nil {
			l = link{}
		}
		return "", false, nil
	})
	if err != nil {
		return console.RoleNone, err
	}
	if l.Expires.IsZero() || time.Now().After(l.Expires) {
		return console.RoleNone, console.Problemf(http.StatusForbidden, "link",
			"the link was used, its time is over, or there never was one")
	}
	return console.ParseRole(l.Role), nil
}

// problem turns a refusal of the approvals into one that a client is shown.
func problem(err error) error {
	var no *approval.Refused
	if !errors.As(err, &no) {
		return err
	}
	status := http.StatusConflict
	switch no.Reason.Code {
	case "approval.unknown":
		status = http.StatusNotFound
	case "approval.role", "approval.own", "approval.not_enrolled", "approver.root":
		status = http.StatusForbidden
	}
	return console.Problemf(status, no.Reason.Code, "%s", no.Reason.Text)
}
