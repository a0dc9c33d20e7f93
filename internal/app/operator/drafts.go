package operator

import (
	"net/http"
	"sync"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/approval/passkey"
	"waldo/internal/frontend/console"
)

// draft is a ceremony that waits for the browser. It is spent by its first use.
type draft struct {
	kind    string // approve, deny, register, enrol
	session string // of the console
	target  string // the approval
	answer  approval.Draft
	at      time.Time

	origin    string
	secret    string // of an enrolment
	invite    Invite
	challenge string
	approver  approval.Approver
	key       passkey.Credential
	message   []byte // that key signs, of an enrolment or for the first approver
}

// Limits on drafts.
const (
	draftLife = 5 * time.Minute
	maxDrafts = 1000
)

type drafts struct {
	mu sync.Mutex
	by map[string]draft
}

// keep stores a draft and returns its name.
func (d *drafts) keep(one draft) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for name, old := range d.by {
		if now.Sub(old.at) > draftLife {
			delete(d.by, name)
		}
	}
	if len(d.by) >= maxDrafts {
		d.by = map[string]draft{} // those people begin again
	}
	one.at = now
	name := secret()
	d.by[name] = one
	return name
}

// take returns a draft once, to the login and for the purpose that it was made for.
func (d *drafts) take(name, kind string, who console.Who, target string) (draft, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one, ok := d.by[name]
	delete(d.by, name)
	if !ok || time.Since(one.at) > draftLife {
		return draft{}, console.Problemf(http.StatusConflict, "draft.unknown",
			"the signature is for no question that is open here; begin again")
	}
	if one.kind != kind || one.session != who.Session || one.target != target || one.origin != who.Origin {
		return draft{}, console.Problemf(http.StatusForbidden, "draft.other",
			"the draft is of another login, another page or another answer")
	}
	return one, nil
}
