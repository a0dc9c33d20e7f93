package approval

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"waldo/internal/storage/database"
)

// Configuration is the first approver's word that a configuration may come into force. It is signed by itself, or as a
// part of the first enrolment.
type Configuration struct {
	File      string `json:"file"`               // with its whole path
	Digest    string `json:"digest,omitempty"`   // of the file; empty: it is no longer trusted
	Accepted  string `json:"accepted,omitempty"` // digest of all that waldo trust recorded of it
	By        string `json:"by,omitempty"`
	Key       string `json:"key,omitempty"` // fingerprint of the first approver, who signs
	At        string `json:"signed_at,omitempty"`
	Signature string `json:"signature,omitempty"` // base64, over the rest
}

// UnsignedTrust is the code of a configuration that the first approver has not signed as it is.
const UnsignedTrust = "trust.unsigned"

const forConfiguration = "waldo configuration v1\n"

// Limits on the configurations that the first enrolment signs, so that one record of the log holds them.
const (
	maxTrusted     = 100
	maxTrustedFile = 1000 // bytes
)

func (c Configuration) message() []byte {
	c.Signature = ""
	b := canonical(c)
	if b == nil {
		return nil // it has no one form, so nothing signs it
	}
	return append([]byte(forConfiguration), b...)
}

// Sign puts the signature of the first approver under the configuration.
func (c *Configuration) Sign(by Signer, root Approver, at time.Time) error {
	c.By, c.Key, c.At = root.Name, root.Fingerprint(), database.Stamp(at)
	if c.message() == nil {
		return fmt.Errorf("approval: the path %q cannot be signed", c.File)
	}
	sig, err := by.Sign(c.message())
	if err != nil {
		return fmt.Errorf("approval: signing: %w", err)
	}
	c.Signature = base64.StdEncoding.EncodeToString(sig)
	if !root.signed(c.message(), sig) {
		return refused("approver.signature", "the key does not fit the first approver, %s", Escape(root.Name))
	}
	return nil
}

// trusts returns the configurations of a first enrolment as they are enrolled. It refuses more than one record holds.
func trusts(in []Configuration) (out []Configuration, err error) {
	long := func(c Configuration) bool { return len(c.File) > maxTrustedFile }
	if len(in) > maxTrusted || slices.ContainsFunc(in, long) {
		return nil, fmt.Errorf("approval: the first approver signs at most %d configurations with paths of at most %d bytes",
			maxTrusted, maxTrustedFile)
	}
	for _, c := range in {
		out = append(out, Configuration{File: c.File, Digest: c.Digest, Accepted: c.Accepted})
	}
	return out, nil
}

// Configured takes in a signed configuration. It returns what is wrong with it, as a *Refused; a record that is wrong
// changes nothing. The newest of each path counts, so that repeating an older one restores nothing.
func (l *Ledger) Configured(c Configuration) error {
	h, ok := l.holders[c.Key]
	_, err := time.Parse(time.RFC3339, c.At)
	switch {
	case !ok || h.root != c.Key || h.Name != c.By:
		return refused("configuration.key", "the configuration %s is not signed by a first approver", Escape(c.File))
	case h.revoked:
		return refused("configuration.revoked", "the configuration %s is signed with a key that was revoked before",
			Escape(c.File))
	case err != nil || c.message() == nil || !h.signed(c.message(), signature(c.Signature)):
		return refused("configuration.signature", "the configuration %s is not what its signature stands for", Escape(c.File))
	case c.At <= l.configured[c.Key+" "+c.File].At: // both are signed, and one form of time
		return refused("configuration.old", "the configuration %s was signed before the newest of that path", Escape(c.File))
	}
	l.configure(c)
	return nil
}

func (l *Ledger) configure(c Configuration) {
	if l.configured == nil {
		l.configured = map[string]Configuration{}
	}
	l.configured[c.Key+" "+c.File] = c
	l.changes++
}

// trusted takes in the configurations of a first enrolment.
func (l *Ledger) trusted(a Approver) {
	for _, c := range a.Trusted {
		c.By, c.Key, c.At = a.Name, a.Fingerprint(), a.At
		if c.At > l.configured[c.Key+" "+c.File].At { // a record that is repeated restores nothing
			l.configure(c)
		}
	}
}

// Signatures returns the newest configurations that are signed themselves, sorted.
func (l *Ledger) Signatures() (out []Configuration) {
	for _, c := range l.configured {
		if c.Signature != "" {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b Configuration) int { return cmp.Compare(a.File+" "+a.Key, b.File+" "+b.Key) })
	return out
}

// Judge returns the first approver, who signs configurations. needed is false where neither the log nor a pin names
// one: then no configuration needs a signature. The pins never come from the configuration that is judged.
func (l *Ledger) Judge(pins []string) (root Approver, needed bool, err error) {
	if !l.Named() && pinned(pins, "") {
		return root, false, nil
	}
	root, err = l.Root(pins)
	switch {
	case err != nil:
	case l.holders[root.Fingerprint()].revoked:
		err = refused("approver.revoked", "the first approver was revoked, says the log")
	case l.cut && l.signer != root.Fingerprint():
		err = refused(Unsigned, "records were removed, and the first approver has not signed the removal")
	}
	return root, true, err
}

// NewestOf returns the newest configuration of a path that a first approver signed; the zero one: none.
func (l *Ledger) NewestOf(root Approver, file string) Configuration {
	return l.configured[root.Fingerprint()+" "+file]
}
