package operator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"waldo/internal/core/approval/enrolment"

	"waldo/internal/core/approval"
	"waldo/internal/core/approval/passkey"
	"waldo/internal/feature/console/site"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// forLogin begins the message that a passkey signs to log in, so that no such signature passes for an answer.
const forLogin = "waldo console login v1\n"

// RoleOf returns the strongest role that gateway.console gives a principal.
func RoleOf(roles contract.ConsoleRoles, who call.Principal) site.Role {
	switch {
	case slices.Contains(roles.Operator, string(who)):
		return site.RoleOperator
	case slices.Contains(roles.Approver, string(who)):
		return site.RoleApprover
	case slices.Contains(roles.Viewer, string(who)):
		return site.RoleViewer
	}
	return site.RoleNone
}

// Role satisfies site.Backend. An approver who is enrolled can answer, and more where gateway.console allows it. One
// whose right was ended has no role.
func (p *Operator) Role(ctx context.Context, who call.Principal) (site.Role, error) {
	name, ok := strings.CutPrefix(string(who), "approver:")
	if !ok {
		return site.RoleNone, nil
	}
	_, found, err := p.passkeyOf(ctx, name)
	if err != nil || !found {
		return site.RoleNone, err
	}
	return max(site.RoleApprover, RoleOf(p.o.Waldo.Config().Gateway.Console, who)), nil
}

// passkeyOf returns the passkey of an approver who can answer.
func (p *Operator) passkeyOf(ctx context.Context, name string) (key passkey.Credential, found bool, err error) {
	all, err := p.o.Approvals.Approvers(ctx)
	if err != nil {
		return key, false, problem(err)
	}
	i := slices.IndexFunc(all, func(a approval.Approver) bool { return a.Name == name })
	if i < 0 {
		return key, false, nil
	}
	if key, err = passkey.Parse(all[i].Key); err != nil {
		return key, false, nil //nolint:nilerr // the approver has a passphrase
	}
	return key, true, nil
}

// maxName is the longest name that a login is for, in bytes. A draft holds it, and anybody can ask for a draft.
const maxName = 200

// LoginBegin satisfies site.Backend. A name without a passkey gets a ceremony that no passkey can end: who has one
// is not for strangers.
func (p *Operator) LoginBegin(ctx context.Context, who site.Who, name string) (site.Ceremony, error) {
	if len(name) > maxName {
		return site.Ceremony{}, site.Problemf(http.StatusBadRequest, "body", "a name has at most %d bytes", maxName)
	}
	key, found, err := p.passkeyOf(ctx, name)
	if err != nil {
		return site.Ceremony{}, err
	}
	rp, err := passkey.RelyingParty(who.Origin)
	if err != nil {
		return site.Ceremony{}, site.Problemf(http.StatusBadRequest, "login.origin", "%v", err)
	}
	if !found || key.Origin != who.Origin {
		decoy := sha256.Sum256([]byte(p.decoy + "\n" + name))
		key = passkey.Credential{ID: decoy[:16], Origin: who.Origin}
	}
	message := []byte(fmt.Sprintf("%s%s\n%s\n%s", forLogin, enrolment.Secret(), who.Origin, name))
	options, err := json.Marshal(map[string]any{
		"challenge": passkey.Challenge(message), "rpId": rp, "userVerification": "required",
		"timeout": draftLife.Milliseconds(),
		"allowCredentials": []map[string]any{
			{"type": "public-key", "id": base64.RawURLEncoding.EncodeToString(key.ID)},
		},
	})
	d := draft{kind: kindLogin, session: who.Session, origin: who.Origin, challenge: string(message), secret: name,
		peer: who.Peer}
	return site.Ceremony{Draft: p.drafts.keep(d), Name: name, Options: options}, err
}

// LoginFinish satisfies site.Backend.
func (p *Operator) LoginFinish(
	ctx context.Context, who site.Who, name string, assertion json.RawMessage,
) (call.Principal, site.Role, error) {
	refused := site.Problemf(http.StatusForbidden, "login.passkey", "no passkey of that approver signed this login")
	d, err := p.drafts.take(name, kindLogin, who, "")
	if err != nil {
		return "", site.RoleNone, err
	}
	key, found, err := p.passkeyOf(ctx, d.secret)
	if err != nil || !found {
		return "", site.RoleNone, refused
	}
	small, err := passkey.Compact(bytes.Clone(assertion))
	if err != nil || key.Origin != who.Origin || key.Verify([]byte(d.challenge), small) != nil {
		return "", site.RoleNone, refused
	}
	principal := call.Principal("approver:" + d.secret)
	role, err := p.Role(ctx, principal)
	return principal, role, err
}
