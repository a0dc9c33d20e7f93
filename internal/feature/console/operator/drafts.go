package operator

import (
	"maps"
	"net/http"
	"sync"
	"time"
	"waldo/internal/core/approval/enrolment"

	"waldo/internal/core/approval"
	"waldo/internal/core/approval/passkey"
	"waldo/internal/feature/console/site"
)

// draft is a ceremony that waits for the browser. It is spent by its first use.
type draft struct {
	kind    string // approve, deny, register, enrol, root or kindLogin
	session string // of the console
	target  string // the approval
	answer  approval.Draft
	passes  bool // the answer is to a question of another waldo
	at      time.Time

	peer      string // who asked for a login
	origin    string
	secret    string // of an enrolment
	invite    enrolment.Invite
	challenge string
	approver  approval.Approver
	key       passkey.Credential
	message   []byte // that key signs, of an enrolment or for the first approver
}

// kindLogin is that of a login.
const kindLogin = "login"

// Limits on drafts.
const (
	draftLife = 5 * time.Minute
	maxDrafts = 1000
	maxLogins = 2000 // drafts of logins, which anybody can ask for
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
	maps.DeleteFunc(d.by, func(_ string, old draft) bool { return now.Sub(old.at) > draftLife })
	most, alike := maxDrafts, func(_ string, old draft) bool { return old.kind != kindLogin }
	if one.kind == kindLogin { // strangers take no draft of a person who has logged in
		most, alike = maxLogins, func(_ string, old draft) bool { return old.kind == kindLogin }
	}
	of, all, greedy := map[string]int{}, 0, ""
	for name, old := range d.by {
		if alike(name, old) {
			all++
			if of[old.peer]++; of[old.peer] > of[greedy] {
				greedy = old.peer
			}
		}
	}
	if all >= most { // who has most begins again
		maps.DeleteFunc(d.by, func(name string, old draft) bool { return alike(name, old) && old.peer == greedy })
	}
	one.at = now
	name := enrolment.Secret()
	d.by[name] = one
	return name
}

// take returns a draft once, to the login and for the purpose that it was made for.
func (d *drafts) take(name, kind string, who site.Who, target string) (draft, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one, ok := d.by[name]
	delete(d.by, name)
	if !ok || time.Since(one.at) > draftLife {
		return draft{}, site.Problemf(http.StatusConflict, "draft.unknown",
			"the signature is for no question that is open here; begin again")
	}
	if one.kind != kind || one.session != who.Session || one.target != target || one.origin != who.Origin {
		return draft{}, site.Problemf(http.StatusForbidden, "draft.other",
			"the draft is of another login, another page or another answer")
	}
	return one, nil
}
