package e2b

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"waldo/internal/app"
	"waldo/internal/model/call"
	"waldo/internal/model/id"
	"waldo/internal/sandbox/template"
	"waldo/internal/storage/sandboxes"
)

// envdVersion is the version of E2B's daemon whose features waldo has: the SDK asks no more of it.
const envdVersion = "0.6.4"

// Limits of sandboxes.
const (
	maxBoxes     = 100 // of one principal
	maxTime      = 24 * time.Hour
	usualTime    = 5 * time.Minute
	maxPairs     = 64 // of metadata, and of environment
	maxPairSize  = 4 << 10
	maxBodies    = 4 << 20 // bytes of all bodies of one principal, as they are stored
	maxForks     = 16
	maxSnapshots = 100                 // of one principal
	parked       = 30 * 24 * time.Hour // a paused sandbox waits for so long at least
)

// creation is the body of a new sandbox. The fields that waldo cannot hold to are refused where they are set.
type creation struct {
	TemplateID      string            `json:"templateID"`
	Metadata        map[string]string `json:"metadata"`
	EnvVars         map[string]string `json:"envVars"`
	Timeout         *int64            `json:"timeout"` // seconds
	Network         *network          `json:"network"`
	Internet        *bool             `json:"allow_internet_access"`
	AutoPause       bool              `json:"autoPause"`
	AutoPauseMemory *bool             `json:"autoPauseMemory"`
	AutoResume      *struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	Secure       *bool           `json:"secure"` // always
	VolumeMounts json.RawMessage `json:"volumeMounts"`
	MCP          json.RawMessage `json:"mcp"`
	IAM          json.RawMessage `json:"iam"`
}

func (c *creation) check() error {
	for name, v := range map[string]json.RawMessage{"volumeMounts": c.VolumeMounts, "mcp": c.MCP, "iam": c.IAM} {
		if text := string(v); text != "" && text != "null" && text != "[]" && text != "{}" {
			return fail(400, "waldo has no %s: docs/e2b.md says what it has instead", name)
		}
	}
	for name, m := range map[string]map[string]string{"metadata": c.Metadata, "envVars": c.EnvVars} {
		if len(m) > maxPairs {
			return fail(400, "%s: at most %d", name, maxPairs)
		}
		for k, v := range m {
			if k == "" || len(k)+len(v) > maxPairSize || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
				return fail(400, "%s: %.50q: a name without = and a text, of at most %d bytes", name, k, maxPairSize)
			}
		}
	}
	return c.Network.check()
}

// lasting converts a timeout.
func lasting(seconds *int64) (time.Duration, error) {
	if seconds == nil {
		return usualTime, nil
	}
	if *seconds < 0 || *seconds > int64(maxTime/time.Second) {
		return 0, fail(400, "timeout: %d seconds: from 0 to %d", *seconds, int64(maxTime/time.Second))
	}
	return time.Duration(*seconds) * time.Second, nil
}

func (s *server) create(who call.Principal, w http.ResponseWriter, r *http.Request) error {
	var c creation
	if err := read(w, r, &c); err != nil {
		return err
	}
	d, err := lasting(c.Timeout)
	if err = errors.Join(err, c.check()); err != nil {
		return err
	}
	b := box{Owner: string(who), Template: c.TemplateID, Offline: c.Internet != nil && !*c.Internet, Pause: c.AutoPause,
		body: body{Metadata: c.Metadata, Env: c.EnvVars, Network: c.Network}}
	if b, err = s.make(r.Context(), b, d); err != nil {
		return err
	}
	return answer(w, http.StatusCreated, s.opened(b))
}

// make makes the sandbox of a box, within the limit of its principal.
func (s *server) make(ctx context.Context, b box, d time.Duration) (box, error) {
	now := s.h.InForce()
	if !slices.ContainsFunc([]call.Capability{"exec", "run_python"}, func(c call.Capability) bool {
		return now.Policy.Usable(c, call.Principal(b.Owner), channel)
	}) {
		return b, fail(403, "the contracts allow %s neither exec nor run_python", b.Owner)
	}
	s.making.Lock()
	defer s.making.Unlock()
	b.ID = "" // of a fork: that of the sandbox it comes from
	text, n, err := s.fits(ctx, b)
	if err != nil {
		return b, err
	}
	if n >= maxBoxes {
		return b, fail(429, "%d sandboxes are open, which is the most for one key", n)
	}
	is, err := s.fresh(ctx, b)
	if err != nil {
		return b, err
	}
	b.ID, b.Started = is.ID, time.Now().UTC().Truncate(time.Millisecond)
	b.End = b.Started.Add(d)
	err = errors.Join(s.put(ctx, b, text),
		s.record(ctx, record{Op: "create", Sandbox: b.ID, Principal: b.Owner, From: b.Template}))
	if err != nil {
		return b, errors.Join(err, s.m.Remove(ctx, b.Owner, is.ID, true))
	}
	return b, nil
}

// hosted are the templates that stand for the machine's own root, or for that of the contract.
var hosted = []string{"", "base", "code-interpreter-v1"}

// fresh makes the named sandbox: empty, or with the files of a snapshot.
func (s *server) fresh(ctx context.Context, b box) (is sandboxes.Sandbox, err error) {
	var tail [6]byte
	_, _ = rand.Read(tail[:]) // never fails: crypto/rand ends the process instead
	is = s.h.NewSandbox(b.Owner, "e2b-"+hex.EncodeToString(tail[:]), parked)
	name := cmp.Or(b.from, b.Template)
	switch {
	case slices.Contains(hosted, name):
	case id.Is(id.Snapshot, name):
		return s.m.From(ctx, b.Owner, is.Name, name)
	default:
		t, err := s.named(ctx, name)
		if err != nil {
			return is, err
		}
		is.Template, is.Digest = t.Name, t.Digest
	}
	return s.m.Create(ctx, is)
}

// named returns a template that an operator built. No client makes waldo fetch one, or read a folder of the machine.
func (s *server) named(ctx context.Context, name string) (t template.Template, err error) {
	if template.CheckName(name) != nil {
		return t, fail(404, "no such template: %.100q; hint: waldo template build NAME makes one", name)
	}
	all, err := app.OpenTemplates(s.h.State, nil)
	if err != nil {
		return t, err
	}
	if t, err = all.Named(ctx, name); errors.As(err, &template.Unfit{}) {
		err = fail(404, "no such template: %.100q; hint: waldo template build NAME makes one", name)
	}
	return t, err
}

// opened is a sandbox as a client needs it to use it.
func (s *server) opened(b box) map[string]any {
	return map[string]any{"sandboxID": public(b.ID), "templateID": b.Template, "clientID": "waldo", "envdVersion": envdVersion,
		"envdAccessToken": s.token(b.ID, forFiles), "trafficAccessToken": s.token(b.ID, forTraffic), "domain": nil}
}

// shown is a sandbox as a client sees it in lists.
func (s *server) shown(b box, is sandboxes.Sandbox) map[string]any {
	c, _ := s.h.InForce().Policy.Lookup("exec")
	hosts, offline := b.hosts(c.Network)
	if len(hosts) == 0 && !offline {
		hosts = c.Network.Allow
	}
	state := "running"
	if is.State != sandboxes.Ready {
		state = "paused"
	}
	memory := app.DefaultLimits.Memory >> 20
	if c.Run.MemoryMB > 0 {
		memory = int64(c.Run.MemoryMB)
	}
	kept := b.Metadata
	if kept == nil {
		kept = map[string]string{}
	}
	action := "kill"
	if b.Pause {
		action = "pause"
	}
	return map[string]any{"sandboxID": public(b.ID), "templateID": b.Template, "clientID": "waldo", "alias": is.Name,
		"envdVersion": envdVersion, "startedAt": b.Started, "endAt": b.End, "state": state, "metadata": kept, "cpuCount": 1,
		"memoryMB": memory, "diskSizeMB": is.Limits.Disk >> 20, "domain": nil,
		"network":   map[string]any{"allowOut": append([]string{}, hosts...), "denyOut": everything[:1]},
		"lifecycle": map[string]any{"onTimeout": action, "autoResume": false}}
}

func (s *server) get(who call.Principal, w http.ResponseWriter, r *http.Request) error {
	b, is, err := s.owned(who, r)
	if err == nil {
		b, err = s.whole(r.Context(), b)
	}
	if err != nil {
		return err
	}
	out := s.shown(b, is)
	out["envdAccessToken"], out["trafficAccessToken"] = s.token(b.ID, forFiles), s.token(b.ID, forTraffic)
	return answer(w, http.StatusOK, out)
}

// maxPage bounds one page of a list.
const maxPage = 100

func (s *server) list(who call.Principal, w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	wanted, err := url.ParseQuery(q.Get("metadata"))
	if err != nil {
		return fail(400, "metadata: %v", err)
	}
	size := maxPage
	if text := q.Get("limit"); text != "" {
		if size, err = strconv.Atoi(text); err != nil || size < 1 || size > maxPage {
			return fail(400, "limit: from 1 to %d", maxPage)
		}
	}
	states := strings.FieldsFunc(strings.Join(q["state"], ","), func(r rune) bool { return r == ',' })
	all, err := s.boxes(r.Context())
	bytes := 0
	all = slices.DeleteFunc(all, func(b box) bool { return b.Owner != string(who) || public(b.ID) <= q.Get("nextToken") })
	for _, b := range all {
		bytes += b.Size
	}
	if err == nil {
		err = s.hold(r.Context(), string(who), bytes)
	}
	if err != nil {
		return err
	}
	out := []map[string]any{}
	for _, b := range all {
		b, is, err := s.find(r.Context(), b.ID)
		if err != nil {
			continue // it ended meanwhile
		}
		if err := s.load(r.Context(), &b); err != nil {
			return err
		}
		one := s.shown(b, is)
		fits := len(states) == 0 || slices.Contains(states, one["state"].(string))
		for k := range wanted {
			fits = fits && b.Metadata[decoded(k)] == decoded(wanted.Get(k))
		}
		if !fits {
			continue
		}
		if len(out) == size {
			w.Header().Set("X-Next-Token", out[size-1]["sandboxID"].(string))
			break
		}
		out = append(out, one)
	}
	return answer(w, http.StatusOK, out)
}

// decoded undoes the second escape that the SDK puts on names and values of metadata.
func decoded(s string) string {
	if out, err := url.QueryUnescape(s); err == nil {
		return out
	}
	return s
}

func (s *server) kill(who call.Principal, w http.ResponseWriter, r *http.Request) error {
	b, _, err := s.owned(who, r)
	if err == nil {
		err = s.end(r.Context(), b, "kill")
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (s *server) timeout(who call.Principal, w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Timeout *int64 `json:"timeout"`
	}
	b, _, err := s.requested(who, w, r, &in)
	if err != nil {
		return err
	}
	d, err := lasting(in.Timeout)
	if err != nil {
		return err
	}
	if _, err := s.change(r.Context(), b.ID, func(b *box) { b.End = time.Now().UTC().Add(d) }); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// connect lets a client use a sandbox that is there, and resumes a paused one. It can only lengthen its time.
func (s *server) connect(who call.Principal, w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Timeout *int64 `json:"timeout"`
		Memory  *bool  `json:"memory"` // false: its commands end first
	}
	b, is, err := s.requested(who, w, r, &in)
	if err != nil {
		return err
	}
	d, err := lasting(in.Timeout)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if b, err = s.change(r.Context(), b.ID, func(b *box) {
		if end := time.Now().UTC().Add(d); end.After(b.End) {
			b.End = end
		}
	}); err != nil {
		return err
	}
	if is.State != sandboxes.Ready {
		if in.Memory != nil && !*in.Memory {
			s.drop(b.ID)
		}
		status = http.StatusCreated
		if _, err := s.m.Resume(r.Context(), b.Owner, b.ID); err != nil {
			return err
		}
		if err := s.record(r.Context(), record{Op: "resume", Sandbox: b.ID, Principal: b.Owner}); err != nil {
			return err
		}
	}
	return answer(w, status, s.opened(b))
}

// narrow replaces what the client asks of the network. It holds for commands that start from now on.
func (s *server) narrow(who call.Principal, w http.ResponseWriter, r *http.Request) error {
	var in struct {
		network
		Internet *bool `json:"allow_internet_access"`
	}
	b, _, err := s.requested(who, w, r, &in)
	if err == nil {
		err = in.network.check()
	}
	if err != nil {
		return err
	}
	s.making.Lock()
	defer s.making.Unlock()
	if b, err = s.whole(r.Context(), b); err != nil {
		return err
	}
	b.Network = &in.network
	text, _, err := s.fits(r.Context(), b)
	if err == nil {
		_, err = s.change(r.Context(), b.ID, func(b *box) {
			b.Size, b.Offline = len(text), in.Internet != nil && !*in.Internet
		})
	}
	if err == nil {
		err = s.h.Store.Put(r.Context(), bodies, b.ID, text)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return s.record(r.Context(), record{Op: "network", Sandbox: b.ID, Principal: b.Owner})
}

func (s *server) pause(who call.Principal, w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Memory *bool `json:"memory"`
	}
	b, is, err := s.requested(who, w, r, &in)
	if err != nil {
		return err
	}
	if is.State != sandboxes.Ready {
		return fail(409, "the sandbox is paused already")
	}
	if in.Memory != nil && !*in.Memory {
		s.drop(b.ID)
	}
	if err := s.freeze(r.Context(), b); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *server) snapshot(who call.Principal, w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Name string `json:"name"`
	}
	b, is, err := s.requested(who, w, r, &in)
	if err == nil && in.Name != "" {
		err = fail(400, "a snapshot has no name here: use the id that is answered")
	}
	if err != nil {
		return err
	}
	p, err := s.picture(r.Context(), b, is)
	if err != nil {
		return err
	}
	return answer(w, http.StatusCreated, map[string]any{"snapshotID": p.ID, "names": []string{}})
}

// picture keeps the files of a sandbox. Its commands stand still meanwhile.
func (s *server) picture(ctx context.Context, b box, is sandboxes.Sandbox) (p sandboxes.Snapshot, err error) {
	all, err := s.m.Snapshots(ctx, b.Owner)
	if err != nil {
		return p, err
	}
	if len(all) >= maxSnapshots {
		return p, fail(429, "%d snapshots are kept, which is the most for one key", len(all))
	}
	s.of(b.ID).share()
	if is.State == sandboxes.Ready && is.Running > 0 {
		_, going, err := s.m.Pause(ctx, b.Owner, b.ID)
		if err == nil && going > 0 {
			err = fail(501, "commands run that cannot be stopped in place here: end them first")
		}
		defer func() { _, _ = s.m.Resume(context.WithoutCancel(ctx), b.Owner, b.ID) }()
		if err != nil {
			return p, err
		}
	}
	if p, err = s.m.Snapshot(ctx, b.Owner, b.ID); err != nil {
		return p, err
	}
	return p, s.record(ctx, record{Op: "snapshot", Sandbox: b.ID, Principal: b.Owner, From: p.ID})
}

func (s *server) fork(who call.Principal, w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Timeout *int64 `json:"timeout"`
		Count   *int   `json:"count"`
	}
	b, is, err := s.requested(who, w, r, &in)
	if err != nil {
		return err
	}
	d, err := lasting(in.Timeout)
	count := 1
	if in.Count != nil {
		count = *in.Count
	}
	if err == nil && (count < 1 || count > maxForks) {
		err = fail(400, "count: from 1 to %d", maxForks)
	}
	if err != nil {
		return err
	}
	if b, err = s.whole(r.Context(), b); err != nil {
		return err
	}
	p, err := s.picture(r.Context(), b, is)
	if err != nil {
		return err
	}
	out := []map[string]any{}
	for range count {
		next := b
		next.from = p.ID
		if next, err = s.make(r.Context(), next, d); err != nil {
			f := failed(err)
			out = append(out, map[string]any{"error": map[string]any{"code": f.status, "message": f.text}})
			continue
		}
		out = append(out, map[string]any{"sandbox": s.opened(next)})
	}
	if err := s.m.Forget(r.Context(), b.Owner, p.ID); err != nil {
		return err
	}
	return answer(w, http.StatusCreated, out)
}

func (s *server) snapshots(who call.Principal, w http.ResponseWriter, r *http.Request) error {
	all, err := s.m.Snapshots(r.Context(), string(who))
	if err != nil {
		return err
	}
	out := []map[string]any{}
	for _, p := range all {
		if of := r.URL.Query().Get("sandboxID"); of == "" || of == public(p.Of.ID) {
			out = append(out, map[string]any{"snapshotID": p.ID, "names": []string{}, "createdAt": p.Created})
		}
	}
	return answer(w, http.StatusOK, out)
}

// forget deletes a snapshot, which E2B has as a template.
func (s *server) forget(who call.Principal, w http.ResponseWriter, r *http.Request) error {
	ident, _, _ := strings.Cut(r.PathValue("id"), ":")
	if !id.Is(id.Snapshot, ident) {
		return fail(404, "no such snapshot; an operator removes templates: waldo template rm NAME")
	}
	if err := s.m.Forget(r.Context(), string(who), ident); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return s.record(r.Context(), record{Op: "forget", Principal: string(who), From: ident})
}

func (s *server) templates(_ call.Principal, w http.ResponseWriter, _ *http.Request) error {
	out := []map[string]any{}
	for _, name := range hosted[1:] {
		out = append(out, map[string]any{"templateID": name, "aliases": []string{name}, "public": true})
	}
	return answer(w, http.StatusOK, out)
}

// template reports whether a name is one of a template.
func (s *server) template(_ call.Principal, w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("alias")
	if !slices.Contains(hosted[1:], name) {
		if _, err := s.named(r.Context(), name); err != nil {
			return err
		}
	}
	return answer(w, http.StatusOK, map[string]any{"templateID": name, "public": true})
}

func (s *server) metrics(who call.Principal, w http.ResponseWriter, r *http.Request) error {
	b, is, err := s.owned(who, r)
	if err != nil {
		return err
	}
	out, err := s.measured(r.Context(), b, is)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, []map[string]any{out})
}
