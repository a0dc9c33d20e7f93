// Package operator carries out the requests of the console over one state directory. It satisfies site.Backend. It
// reads the log and the database, where every waldo of the directory meets, so it needs no daemon.
package operator

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"waldo/internal/core/approval/enrolment"

	"waldo/internal/app/control"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/core/policy"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/feature/console/site"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/storage/database"
	"waldo/internal/storage/inbox"
	"waldo/internal/storage/sandboxes"
)

// Options are the parts of an application that the console works on.
type Options struct {
	Store     *database.Store
	Log       *audit.Log
	Approvals *approval.Service
	Webhooks  *inbox.Queue
	Events    inbox.Operator // retries and drops deliveries
	Owner     string         // of the sandboxes
	Waldo     Waldo
}

// Waldo is this process of waldo, with the configuration that is in force at the time of each call.
type Waldo interface {
	Config() *contract.Config
	Policy() *policy.Policy
	// Compile compiles a changed text of the configuration, as a reload would.
	Compile(text []byte) (*policy.Policy, contract.Problems, error)
	Accepted() *lockfile.Lock                         // definitions
	Pins(ctx context.Context) ([]site.Pin, error)     // looks at every server
	ForgetCLI(ctx context.Context, name string) error // ends what a stopped user shares beside its sessions
	VerifyLog(ctx context.Context) (audit.Report, error)
	Serves() bool               // this process serves hosts: its servers are theirs
	Restart(server string) bool // one of its servers; false: there is none of that name
}

// Operator satisfies site.Backend.
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

	mu   sync.Mutex // guards both
	read string     // digest of the configuration in force
	at   time.Time  // when this process first saw it
}

// New returns an operator. It begins to read the log at its first use; Close ends that.
func New(o Options) *Operator {
	ctx, end := context.WithCancel(context.Background())
	p := &Operator{o: o, sandboxes: sandboxes.New(o.Store, time.Now), end: end, drafts: drafts{by: map[string]draft{}},
		decoy: enrolment.Secret()}
	p.index = newIndex(audit.Dir(o.Store.Dir()), func() {
		p.work.Go(func() { p.index.follow(ctx) })
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

// Here satisfies site.Backend.
func (p *Operator) Here(ctx context.Context) (site.Here, error) {
	cfg, digest := p.o.Waldo.Config(), p.o.Waldo.Policy().Digest()
	p.mu.Lock()
	if p.at.IsZero() || digest != p.read {
		p.read, p.at = digest, time.Now()
	}
	h := site.Here{Environment: cfg.Environment, Config: cfg.File, Since: p.at}
	p.mu.Unlock()
	var err error
	if h.Config != "" {
		if h.Config, err = filepath.Abs(h.Config); err != nil {
			return h, err
		}
	}
	if h.Machine, err = os.Hostname(); err != nil {
		return h, err
	}
	open, err := waiting(ctx, p.o.Approvals)
	h.Open = open
	return h, problem(err)
}

// Recent satisfies site.Backend.
func (p *Operator) Recent(ctx context.Context) ([]site.Record, error) {
	if err := p.index.use(ctx); err != nil {
		return nil, err
	}
	p.index.mu.Lock()
	defer p.index.mu.Unlock()
	out := []site.Record{}
	for _, r := range slices.Backward(p.index.recent) {
		out = append(out, record(r))
	}
	return out, nil
}

// KindConsole is the kind of record that each action of the console leaves in the log.
const KindConsole = "console"

// Audit satisfies site.Backend.
func (p *Operator) Audit(ctx context.Context, who site.Who, e site.Event) error {
	body := struct {
		site.Event
		Principal call.Principal `json:"principal"`
		Role      string         `json:"role"`
		Login     string         `json:"login,omitempty"` // digest of the login's id
		Origin    string         `json:"origin,omitempty"`
	}{e, who.Principal, who.Role.String(), "", who.Origin}
	if who.Session != "" {
		body.Login = enrolment.Digest(who.Session)[:16]
	}
	body.Target, body.Why = display.Clip(body.Target, 512), display.Clip(body.Why, 512)
	return control.RecordSync(context.WithoutCancel(ctx), p.o.Log, KindConsole, body)
}

// links is the bucket of one-time login links: the digest of a token to a link.
const links = "console-links"

// LinkLife is how long a login link is good for.
const LinkLife = 10 * time.Minute

type link struct {
	Role    string    `json:"role"`
	Expires time.Time `json:"expires"`
	Owner   string    `json:"owner,omitempty"` // the user of this machine whose connection may use it; empty: any
}

// NewLink makes a one-time login token for the connections of one user of this machine, or of anybody with an empty
// owner. Every writer of the state directory can make one. A login can do as much as the command line, and cannot
// approve without a passkey.
func NewLink(ctx context.Context, s *database.Store, role site.Role, owner string) (string, error) {
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
	b, err := json.Marshal(link{role.String(), time.Now().Add(LinkLife), owner})
	if err != nil {
		return "", err
	}
	token := enrolment.Secret()
	return token, s.Put(ctx, links, enrolment.Digest(token), string(b))
}

// UseLink satisfies site.Backend. One request gets the role of a token.
func (p *Operator) UseLink(ctx context.Context, who site.Who, token string) (site.Role, error) {
	var l link
	err := p.o.Store.Modify(ctx, links, enrolment.Digest(strings.TrimSpace(token)), func(old string, ok bool) (string, bool, error) {
		l = link{}
		if ok && json.Unmarshal([]byte(old), &l) != nil {
			l = link{}
		}
		return "", false, nil
	})
	if err != nil {
		return site.RoleNone, err
	}
	if l.Expires.IsZero() || time.Now().After(l.Expires) {
		return site.RoleNone, site.Problemf(http.StatusForbidden, "link",
			"the link was used, its time is over, or there never was one")
	}
	if l.Owner != "" && l.Owner != who.Peer {
		return site.RoleNone, site.Problemf(http.StatusForbidden, "link.owner",
			"the link belongs to user %s of this machine, and user %q used it: somebody else has it", l.Owner, who.Peer)
	}
	return site.ParseRole(l.Role), nil
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
	return site.Problemf(status, no.Reason.Code, "%s", no.Reason.Text)
}
