// Package redact hides data from the agent: known secrets in any encoding, text that looks like a secret, and
// personal data. Masks or tokens of the session replace them; tokens are restored for the tools that may see the
// values. It also removes invisible characters from text.
package redact

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"waldo/internal/core/policy"
	"waldo/internal/detect"
	"waldo/internal/detect/scrub"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/protocol/strictjson"
)

// secretMask replaces a secret.
const secretMask = "[SECRET]"

// Vaults stores the tokens of every session; *session.Manager implements it.
type Vaults interface {
	// Token returns the token for a value, or false where the value must be masked.
	Token(s call.Session, class, value string) (string, bool)
	// Value returns the value of a token of that session.
	Value(s call.Session, token string) (string, bool)
}

// Registry holds the secrets that waldo knows. The zero Registry is empty and ready to use.
type Registry struct {
	mu       sync.Mutex
	secrets  map[secret.Ref][]secret.Value // the newest last
	compiled atomic.Pointer[matcher]
}

// maxOld limits the values remembered per secret: the current one and earlier ones, which may be in use elsewhere.
const maxOld = 8

// Add registers a secret's value under its name, beside the name's earlier values. A value under six bytes is hidden
// only if it is the whole of a JSON string. Add then returns an error for the operator, and registers the value
// anyway.
func (g *Registry) Add(name secret.Ref, v secret.Value) error {
	s := v.Reveal()
	if s == "" {
		return fmt.Errorf("secret %s: empty, so there is nothing to hide", name)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.secrets == nil {
		g.secrets = map[secret.Ref][]secret.Value{}
	}
	all := g.secrets[name]
	if i := slices.IndexFunc(all, v.Same); i >= 0 {
		all = slices.Delete(all, i, i+1)
	} else {
		g.compiled.Store(nil)
	}
	all = append(all, v)
	g.secrets[name] = all[max(0, len(all)-maxOld):]
	if len(s) < scrub.MinSecret {
		return fmt.Errorf("secret %s: %d bytes are too few to be hidden in other text, which takes %d",
			name, len(s), scrub.MinSecret)
	}
	return nil
}

// Remove forgets a secret.
func (g *Registry) Remove(name secret.Ref) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.secrets, name)
	g.compiled.Store(nil)
}

// matcher compiles the secrets when they have changed.
func (g *Registry) matcher() *matcher {
	if m := g.compiled.Load(); m != nil {
		return m
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.compiled.Load(); m != nil {
		return m
	}
	all := make([]string, 0, len(g.secrets))
	for _, values := range g.secrets {
		for _, v := range values {
			all = append(all, v.Reveal())
		}
	}
	m := newMatcher(all)
	g.compiled.Store(m)
	return m
}

// Epoch is another whenever the known secrets are.
func (g *Registry) Epoch() any { return g.matcher() }

// Text returns s without any known secret. It is for waldo's own texts that are not results: errors, log lines,
// descriptions.
func (g *Registry) Text(s string) string {
	m := newMatcherOf(g)
	if m.short[s] {
		return secretMask
	}
	return (&pass{known: m}).secrets(s)
}

// JSON returns a JSON value without any known secret in its strings, numbers and names. One that has
// none stays byte for byte.
func (g *Registry) JSON(raw []byte) []byte {
	p := pass{known: newMatcherOf(g)}
	if len(p.known.short) == 0 && !p.known.Has(raw) {
		return raw
	}
	return p.json(raw)
}

// Part reports whether a text holds half of a known secret, or more, in any case. Of a long secret, 24 bytes count; of a
// short one, 12. An agent must not choose the text: it would learn the secret from the answers.
func (g *Registry) Part(text string) bool {
	const least, most = 12, 24
	g.mu.Lock()
	defer g.mu.Unlock()
	text = strings.ToLower(text)
	for _, values := range g.secrets {
		for _, v := range values {
			s := strings.ToLower(v.Reveal())
			n := min(len(s), max(least, min(len(s)/2, most)))
			for i := 0; i+n <= len(text) && len(s) >= scrub.MinSecret; i++ {
				if strings.Contains(s, text[i:i+n]) {
					return true
				}
			}
		}
	}
	return false
}

// Redactor hides and restores. Known, Vaults and Spill are set once, before it is used.
type Redactor struct {
	Known  *Registry // nil: no secrets are known
	Vaults Vaults    // nil: personal data is masked
	// Spill stores the overflow of a result in the session's workspace, redacted, and returns its path for the agent.
	// Nil drops the overflow, and the result reports that.
	Spill func(s call.Session, name string, data []byte) (path string, err error)

	// Terminal says that the person at the terminal is shown no more than the model is. Otherwise known secrets
	// alone are hidden there.
	Terminal bool

	rules atomic.Pointer[contract.Redaction]
}

// New returns a redactor under the rules of a configuration.
func New(rules contract.Redaction, known *Registry, vaults Vaults) *Redactor {
	r := &Redactor{Known: known, Vaults: vaults}
	r.Configure(rules)
	return r
}

// Configure puts the rules of a new configuration in force.
func (r *Redactor) Configure(rules contract.Redaction) {
	rules.Model = slices.Clone(rules.Model)
	r.rules.Store(&rules)
}

// class is a sort of personal data: the word of a contract. Secrets are always hidden.
type class = detect.Class

const (
	email = detect.Email
	phone = detect.Phone
	ssn   = detect.SSN
	card  = detect.Card
	name  = detect.Name // only in fields of JSON named for a person
)

// pass is one pass over a text: the values to hide and their replacements.
type pass struct {
	known    *matcher
	classes  map[class]bool
	token    func(class, value string) (string, bool) // nil: masks
	literals func(token string) (string, bool)        // the value of text that looks like a token; nil: itself
	clean    bool
	cleaned  *int               // counts the texts that cleaning changed; nil: not counted
	bare     bool               // known secrets alone are hidden, nothing by its form
	hid      func(value string) // called for each value masked or replaced by a token; nil: not called
}

// unlogged are the classes of personal data that the log never holds, even if the model may see them.
var unlogged = []class{name, email, phone, ssn, card}

// pass prepares the redaction of a call: the contract's classes, or else the configuration's. If neither sets any,
// only secrets are hidden.
func (r *Redactor) pass(c contract.Contract) *pass {
	p := &pass{classes: map[class]bool{}, clean: true, known: newMatcherOf(r.Known)}
	rules := r.rules.Load()
	var model []class
	if rules != nil && rules.Model != nil {
		model = rules.Model
	}
	if c.Redact != nil { // the contract's line, or the configuration's in its place
		model = c.Redact
	}
	for _, w := range model {
		p.classes[w] = true
	}
	return p
}

// Definition returns text that a server wrote about itself as a model may see it, under the configuration's classes. No
// session is behind it, so it has masks and no tokens.
func (r *Redactor) Definition(text string) string { return r.pass(contract.Contract{}).text(text) }

// DefinitionJSON does the same for a JSON value, and leaves characters that do not show.
func (r *Redactor) DefinitionJSON(raw []byte) []byte {
	p := r.pass(contract.Contract{})
	p.clean = false
	return p.json(raw)
}

func newMatcherOf(g *Registry) *matcher {
	if g == nil {
		return noSecrets()
	}
	return g.matcher()
}

var noSecrets = sync.OnceValue(func() *matcher { return newMatcher(nil) })

// matcher knows a set of secrets: in any text, and the short ones where they are the whole of a JSON string.
type matcher struct {
	*scrub.Matcher
	short map[string]bool
}

func newMatcher(secrets []string) *matcher {
	m := &matcher{scrub.New(secrets), map[string]bool{}}
	for _, s := range secrets {
		if len(s) < scrub.MinSecret {
			m.short[s] = s != ""
		}
	}
	return m
}

// shortOnly returns a matcher that knows nothing but the secrets too short to look for.
func (m *matcher) shortOnly() *matcher {
	if len(m.short) == 0 {
		return noSecrets()
	}
	return &matcher{noSecrets().Matcher, m.short}
}

// show returns the pass for the model's view of a call.
//
// A program gets the characters as they are: what it prints is cleaned.
func (r *Redactor) show(d policy.Decision) *pass {
	p := r.pass(d.Contract)
	p.clean = d.Call.Channel != bridge
	if d.Call.Channel == "cli" && !r.Terminal {
		p.classes, p.bare = nil, true
		return p
	}
	rules := r.rules.Load()
	if rules == nil || !rules.Tokens || r.Vaults == nil {
		return p
	}
	p.classes[name] = p.hidesPersons()
	s := d.Call.Session
	p.token = func(c class, v string) (string, bool) { return r.Vaults.Token(s, strings.ToUpper(c), v) }
	if d.Contract.Transport != contract.SandboxedExec { // the agent's own code prints the tokens it was given
		asked := string(d.Call.Args.Raw())
		p.literals = func(t string) (string, bool) {
			if strings.Contains(asked, t) {
				return "", false
			}
			return r.Vaults.Token(s, "TEXT", t)
		}
	}
	return p
}

// hidesPersons reports whether any class of personal data is hidden.
func (p *pass) hidesPersons() bool {
	return len(p.classes) > 1 || len(p.classes) == 1 && !p.classes["secrets"]
}

// mask returns the replacement of a value.
func (p *pass) mask(c class, value string) string {
	if c == "secrets" {
		return secretMask
	}
	if p.token != nil {
		if t, ok := p.token(c, value); ok {
			return t
		}
	}
	return "[" + strings.ToUpper(c) + "]"
}

// span is a part of a text.
type span = scrub.Span

// edit is a replacement of a part of a text.
type edit struct {
	span
	text string
}

// maxRounds limits how often a text is scanned again after a replacement.
const maxRounds = 4

// text returns s with everything hidden that the pass hides.
func (p *pass) text(s string) string {
	if p.clean {
		t := Clean(s)
		if t != s && p.cleaned != nil {
			*p.cleaned++
		}
		s = t
	}
	if p.known.short[s] {
		return p.whole(s)
	}
	if dull(s) {
		return p.secrets(s)
	}
	return p.secrets(p.personal(p.secrets(s)))
}

// dull reports whether a short text has nothing to find by form. It holds only letters, spaces, dots and the like,
// too few for a token without digits.
func dull(s string) bool {
	if len(s) >= 13 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlpha(c) && strings.IndexByte(" _./,;!?", c) < 0 {
			return false
		}
	}
	return true
}

// whole hides all of a value.
func (p *pass) whole(s string) string {
	p.count(s, []edit{{span: span{Start: 0, End: len(s)}}})
	return secretMask
}

// count tells of the values that the edits hide.
func (p *pass) count(s string, edits []edit) {
	if p.hid == nil {
		return
	}
	slices.SortStableFunc(edits, inOrder)
	at := 0
	for _, e := range edits {
		if e.Start >= at {
			p.hid(s[e.Start:e.End])
		}
		at = max(at, e.End)
	}
}

// secrets returns s without any known secret.
func (p *pass) secrets(s string) string {
	if len(s) < scrub.MinSecret || p.known == noSecrets() {
		return s
	}
	for range maxRounds {
		spans := p.known.Spans([]byte(s))
		if len(spans) == 0 {
			return s
		}
		edits := make([]edit, 0, len(spans))
		for _, sp := range spans {
			edits = append(edits, edit{sp, secretMask})
		}
		p.count(s, edits)
		s = apply(s, edits)
	}
	if p.known.Has([]byte(s)) {
		return secretMask // hiding brings a secret forth again: nothing of the text is shown
	}
	return s
}

// personal hides what the text shows by its form: secrets of known makes and personal data.
func (p *pass) personal(s string) string {
	edits := p.byForm([]byte(s))
	p.count(s, edits)
	if p.literals != nil {
		edits = append(edits, p.foreign(s)...)
	}
	return apply(s, edits)
}

// edits returns every edit of the pass in t: known secrets and matches by form.
func (p *pass) edits(t []byte) []edit {
	out := p.byForm(t)
	for _, s := range p.known.Spans(t) {
		out = append(out, edit{s, secretMask})
	}
	return out
}

// byForm scans t with its escapes decoded and returns the edits in t itself.
func (p *pass) byForm(t []byte) []edit {
	if p.bare {
		return nil
	}
	v, pos := scrub.Decoded(t, true)
	var finds []detect.Find
	all := append(detect.In(v, p.classes), p.encoded(v)...)
	if form := plusAsSpace(t, v, pos); form != nil {
		all = append(all, detect.In(form, p.classes)...)
	}
	slices.SortStableFunc(all, func(a, b detect.Find) int { return cmp.Compare(a.Start, b.Start) })
	for _, f := range all {
		if pos != nil {
			f.Start, f.End = int(pos[f.Start]), int(pos[f.End])
		}
		for n := len(finds) - 1; n >= 0 && f.Start < finds[n].End; n-- { // one value, so that it is restored whole
			f.Start, f.End = min(finds[n].Start, f.Start), max(finds[n].End, f.End)
			if finds[n].Class == detect.Secrets || f.Class != detect.Secrets {
				f.Class = finds[n].Class
			}
			finds = finds[:n]
		}
		finds = append(finds, f)
	}
	edits := make([]edit, 0, len(finds))
	for _, f := range finds {
		edits = append(edits, edit{span{Start: f.Start, End: f.End}, p.mask(f.Class, string(t[f.Start:f.End]))})
	}
	return edits
}

// plusAsSpace returns a view in which the text's own "+" is a space, as in a form of HTML, if the text has percent
// escapes; else nil.
func plusAsSpace(t, v []byte, pos []int32) []byte {
	if pos == nil || bytes.IndexByte(t, '%') < 0 || bytes.IndexByte(t, '+') < 0 {
		return nil
	}
	form := bytes.Clone(v)
	for i, c := range v {
		if c == '+' && t[pos[i]] == '+' { // and not %2B
			form[i] = ' '
		}
	}
	return form
}

// inOrder puts edits in the order of the text, the longer of two that begin together first.
func inOrder(a, b edit) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End)) }

// apply makes the edits, of which a later one gives way to an earlier one that it overlaps, but
// for the rest of its part.
func apply(s string, edits []edit) string {
	if len(edits) == 0 {
		return s
	}
	slices.SortStableFunc(edits, inOrder)
	var b strings.Builder
	at := 0
	for _, e := range edits {
		if e.Start >= at {
			b.WriteString(s[at:e.Start])
			b.WriteString(e.text)
		}
		at = max(at, e.End)
	}
	b.WriteString(s[at:])
	return b.String()
}

// Args returns the arguments of a decision for the log: masks and the tokens that the model wrote, without secrets or
// personal data. This holds regardless of the contract's classes for the model. It returns the zero Value if the
// arguments cannot be shown.
func (r *Redactor) Args(d policy.Decision) strictjson.Value {
	p := r.pass(d.Contract)
	p.clean = false
	for _, c := range unlogged {
		p.classes[c] = true
	}
	v, err := strictjson.Parse(p.json(d.Call.Args.Raw()))
	if err != nil {
		return strictjson.Value{}
	}
	return v
}
