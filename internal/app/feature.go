package app

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/broker"
	"waldo/internal/core/redact"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/sandbox"
	"waldo/internal/storage/inbox"
)

// Opener opens a feature for one configuration.
type Opener func(*App) (Running, error)

// Running is what an open feature adds to an application. Every field may be empty.
type Running struct {
	Carriers []approval.Notifier                            // ways to put a question to a human
	Routes   []Route                                        // of waldo serve --listen
	Site     Site                                           // the paths that no route has
	API      []byte                                         // the routes below /api/v1, as an OpenAPI document
	Inbox    inbox.Deliveries                               // events from outside for the built-in agent
	Require  func() error                                   // an error where waldo cannot serve this configuration
	Serve    func(ctx context.Context)                      // works while waldo listens, until ctx is done
	Work     func(ctx context.Context)                      // works while waldo serves hosts, over stdio too
	Sweep    func(ctx context.Context, now time.Time) error // removes what is past its retention
	Observer broker.Observer                                // follows calls; that of the first configuration stays, until Close
	Witness  broker.Witness                                 // has other machines cosign the log before calls
	Events   inbox.Operator                                 // retries and drops waiting deliveries
	Agent    Agent                                          // takes tasks of front ends
	Uncopied func(ctx context.Context) (uint64, error)      // records of the log that its bucket does not have
	Waiting  func(ctx context.Context) ([]Waiting, error)   // runs for other machines
	Close    func() error
}

// Site answers the paths of waldo serve --listen that no route has: a console.
type Site interface {
	Open(at net.Addr) Pages                                         // over a listener at an address
	Login(ctx context.Context, at string) (token string, err error) // for one login, at an address
}

// Pages are an open site.
type Pages interface {
	// Serve answers a request. It calls known once the request has shown who it is from.
	Serve(w http.ResponseWriter, r *http.Request, known func(call.Principal))
	Close() error
}

// Agent is the built-in agent, to which a front end gives the tasks of others.
type Agent interface {
	// Give starts the agent of a task, or goes on with it. A result that waits names an open question; once it is
	// answered, the task is given again. One that is cancelled can be given again, too.
	Give(ctx context.Context, t Task) (call.Result, error)
}

// Task is a task for the built-in agent.
type Task struct {
	ID    call.Session // of its agent
	Text  string
	By    call.Principal // whose authority it has, beside the agent's own
	Chain []string       // the delegations that it came under
}

// Route is a part of the HTTP server.
type Route struct {
	Prefix  string // of the paths, as in /hooks/
	Handler http.Handler
	// Exact: Prefix is the one path, or all paths below it where it ends with a slash. waldo checks Host and Origin of
	// their requests, and the handler who asks.
	Exact bool
	// Method is the one that is answered, and Prefix a path of http.ServeMux without it. Empty: every method.
	Method string
}

// Place is a state directory with its configuration, for the checks of waldo doctor.
type Place struct {
	State  string
	Config *contract.Config
	Secret func(secret.Ref) (secret.Value, error)
	Known  *redact.Registry // the secrets that were fetched
}

// Ability returns the result of one check. A failure is shown without known secrets, with a hint.
func (p Place) Ability(name, works string, err error, hint string) sandbox.Ability {
	a := sandbox.Ability{Name: name, OK: err == nil, What: works, Need: true}
	if err != nil {
		a.What, a.Hint = p.Known.Text(err.Error()), hint
	}
	return a
}

// openFeatures opens every feature for this configuration.
func (h *App) openFeatures() error {
	for _, open := range h.set.Openers {
		r, err := open(h)
		if err != nil {
			return err
		}
		ends := &h.closers
		if r.Observer != nil { // it stays when this configuration goes
			h.Broker.Observer, ends = r.Observer, &h.shared
		}
		if r.Close != nil {
			*ends = append(*ends, r.Close)
		}
		h.running = append(h.running, r)
		if r.Witness != nil {
			h.Broker.Witness = r.Witness
		}
	}
	if h.set.after == nil {
		h.Approvals.Carriers = append(h.Approvals.Carriers, h.carriers()...)
	}
	return nil
}

// Uncopied returns how many records of the log its bucket does not have. It returns false if there is no bucket.
func (h *App) Uncopied(ctx context.Context) (records uint64, has bool, err error) {
	for _, r := range h.running {
		if r.Uncopied != nil {
			records, err = r.Uncopied(ctx)
			return records, true, err
		}
	}
	return 0, false, nil
}

// Waiting are the runs of one queue that no worker has taken yet.
type Waiting struct {
	Isolation, Size string
	Runs            int64
	Oldest          time.Duration
}

// WaitingRuns returns the queues of runs for other machines; nil: there are none.
func (h *App) WaitingRuns(ctx context.Context) (all []Waiting, err error) {
	for _, r := range h.running {
		if r.Waiting != nil {
			all, err = r.Waiting(ctx)
		}
	}
	return all, err
}

// Require returns an error where a feature cannot serve this configuration.
func (h *App) Require() error {
	var errs []error
	for _, r := range h.running {
		if r.Require != nil {
			errs = append(errs, r.Require())
		}
	}
	return errors.Join(errs...)
}

// sweepFeatures removes what is past the retention of each feature.
func (h *App) sweepFeatures(ctx context.Context, now time.Time) error {
	var errs []error
	for _, r := range h.running {
		if r.Sweep != nil {
			errs = append(errs, r.Sweep(ctx, now))
		}
	}
	return errors.Join(errs...)
}

// routes returns the handlers of the features by the prefix of their paths, or by their exact paths.
func (h *App) routes(exact bool) map[string]http.Handler {
	out := map[string]http.Handler{}
	for _, r := range h.running {
		for _, route := range r.Routes {
			if route.Exact == exact && route.Method == "" {
				out[route.Prefix] = route.Handler
			}
		}
	}
	return out
}

// methods returns the handlers of the features that answer one method of a path; nil: there are none.
func (h *App) methods() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range h.running {
		for _, route := range r.Routes {
			if route.Method != "" {
				mux.Handle(route.Method+" "+route.Prefix, route.Handler)
			}
		}
	}
	return mux
}

// Documents returns what the features say of their routes below /api/v1, each as an OpenAPI document.
func (h *App) Documents() (out [][]byte) {
	for _, r := range h.running {
		if r.API != nil {
			out = append(out, r.API)
		}
	}
	return out
}

// serveFeatures starts the work of the features, which ends with ctx. wait returns when all have ended.
func (h *App) serveFeatures(ctx context.Context, listens bool) (wait func()) {
	var all sync.WaitGroup
	for _, r := range h.running {
		if r.Serve != nil && listens {
			all.Go(func() { r.Serve(ctx) })
		}
		if r.Work != nil {
			all.Go(func() { r.Work(ctx) })
		}
	}
	return all.Wait
}

// carriers returns the ways of the features to put a question to a human.
func (h *App) carriers() (out []approval.Notifier) {
	for _, r := range h.running {
		out = append(out, r.Carriers...)
	}
	return out
}

// Inbox returns the deliveries of the feature that receives events; nil: there is none.
func (h *App) Inbox() inbox.Deliveries {
	for _, r := range h.running {
		if r.Inbox != nil {
			return r.Inbox
		}
	}
	return nil
}

// Give gives a task to the built-in agent of the configuration in force, which stays open until the agent rests.
func (h *App) Give(ctx context.Context, t Task) (call.Result, error) {
	now, done := h.lives.Enter()
	defer done()
	for _, r := range now.running {
		if r.Agent != nil {
			return r.Agent.Give(ctx, t)
		}
	}
	return call.Result{}, errors.New("this waldo has no agent")
}

// Events returns the part that retries and drops waiting deliveries; nil: there is none.
func (h *App) Events() inbox.Operator {
	for _, r := range h.running {
		if r.Events != nil {
			return r.Events
		}
	}
	return nil
}

// LoginLink returns the token of a one-time login to the console at an address; empty: there is no console.
func (h *App) LoginLink(ctx context.Context, at string) (string, error) {
	if s := h.site(); s != nil {
		return s.Login(ctx, at)
	}
	return "", nil
}

// site returns the site of the features; nil: there is none.
func (h *App) site() Site {
	for _, r := range h.running {
		if r.Site != nil {
			return r.Site
		}
	}
	return nil
}

// Serves reports whether this process serves calls until it is ended, as waldo serve does.
func (h *App) Serves() bool { return h.set.Warm > 0 }

// InForce returns the application with the configuration in force: h, or a later one.
func (h *App) InForce() *App { return h.lives.inForce() }

// Secret returns the value of a secret of this configuration.
func (h *App) Secret(r secret.Ref) (secret.Value, error) { return h.secrets.Get(r) }

// Call passes a call through the pipeline of the configuration in force.
func (h *App) Call(ctx context.Context, c call.Call) (call.Result, error) {
	return h.lives.Call(ctx, c)
}

// Refuse records and answers a call that is refused before the pipeline.
func (h *App) Refuse(ctx context.Context, c call.Call, why call.Reason) (call.Result, error) {
	return h.lives.Refuse(ctx, c, why)
}

// Prepare gives a call the definition of its tool. It returns a reason if the arguments do not fit the definition.
func (h *App) Prepare(ctx context.Context, c *call.Call) *call.Reason {
	now := h.InForce()
	if !now.Policy.Visible(c.Capability) {
		return nil // the policy refuses it
	}
	t := call.Tool{Capability: c.Capability}
	if e, ok := now.Catalogue.Lookup(ctx, string(c.Capability)); ok {
		c.ToolDigest, c.Annotations, t = e.Digest, e.Annotations, e.Tool
	}
	return now.Check(*c, t)
}
