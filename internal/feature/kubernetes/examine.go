package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"waldo/internal/sandbox"
)

// examine asks the API server about the guards. A question that it refuses is a finding.
func (c *client) examine(ctx context.Context) []sandbox.Ability {
	check := func(name string, need bool, done string, try func(context.Context) error) sandbox.Ability {
		return sandbox.Checked(name, need, done, try(ctx))
	}
	return []sandbox.Ability{
		check("Pod Security", true, "the label of the namespace enforces the level restricted", c.restricted),
		check("service account", true, "it reads no Secret, makes no Pod, and has no shell in one", c.powerless),
		check("network policy", true, "a policy of this namespace denies both directions by default", c.denies),
		check("disruption budget", true, "a drained node leaves some of waldo's pods running", c.budget),
		check("RuntimeClass gvisor", false, "pods can have a kernel apart", c.gvisor),
		check("autoscaler's metric", false, "the adapter serves waldo_runs_waiting", c.metric),
	}
}

func hint(hint, format string, a ...any) error {
	return sandbox.WithHint(fmt.Errorf(format, a...), hint)
}

// list returns the items of a collection.
func list[T any](ctx context.Context, c *client, path string) ([]T, error) {
	var l struct{ Items []T }
	err := c.ask(ctx, http.MethodGet, path, nil, &l)
	var m missing
	if errors.As(err, &m) && m.code == http.StatusForbidden {
		return nil, hint("bind the chart's Role to this account, or ask as an administrator: --kubeconfig",
			"this account cannot list %s", path)
	}
	return l.Items, err
}

// restricted asks for the namespace's label. If this account makes pods, the API server must also refuse a privileged
// one, which is not made (dryRun).
func (c *client) restricted(ctx context.Context) error {
	const label = "pod-security.kubernetes.io/enforce"
	var ns struct {
		Metadata struct{ Labels map[string]string }
	}
	at := "/api/v1/namespaces/" + url.PathEscape(c.namespace)
	if err := c.ask(ctx, http.MethodGet, at, nil, &ns); err != nil {
		return err
	}
	if level := ns.Metadata.Labels[label]; level != "restricted" {
		return hint("kubectl label namespace "+c.namespace+" "+label+"=restricted", "the label %s is %q", label, level)
	}
	if makes, err := c.can(ctx, map[string]string{"verb": "create", "resource": "pods"}); err != nil || !makes {
		return err
	}
	container := map[string]any{"name": "privileged", "image": "none.invalid/none",
		"securityContext": map[string]any{"privileged": true}}
	pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"generateName": "waldo-doctor-"},
		"spec": map[string]any{"containers": []any{container}}}
	err := c.ask(ctx, http.MethodPost, at+"/pods?dryRun=All", pod, &struct{}{})
	var m missing
	switch {
	case err == nil:
		return hint("the API server must run the admission plugin PodSecurity", "the API server admits a privileged pod")
	case errors.As(err, &m) && m.code == http.StatusForbidden && strings.Contains(m.message, "violates PodSecurity"):
		return nil
	}
	return fmt.Errorf("a privileged pod was not refused by Pod Security: %w", err)
}

// forbidden is what an account of waldo must not be able to do.
var forbidden = []map[string]string{
	{"verb": "get", "resource": "secrets"}, {"verb": "list", "resource": "secrets"}, {"verb": "get", "resource": "pods"},
	{"verb": "create", "resource": "pods"}, {"verb": "create", "resource": "pods", "subresource": "exec"},
	{"verb": "create", "resource": "serviceaccounts", "subresource": "token"},
	{"verb": "*", "resource": "*", "group": "*"},
}

// powerless reports what this account can do of the forbidden.
func (c *client) powerless(ctx context.Context) error {
	var can []string
	for _, f := range forbidden {
		allowed, err := c.can(ctx, f)
		if err != nil {
			return err
		}
		if allowed {
			can = append(can, strings.TrimSuffix(f["verb"]+" "+f["resource"]+"/"+f["subresource"], "/"))
		}
	}
	if len(can) > 0 {
		return hint("take these rights from its roles", "this account can %s", strings.Join(can, ", "))
	}
	return nil
}

// can asks whether this account is allowed something in the namespace (SelfSubjectAccessReview).
func (c *client) can(ctx context.Context, what map[string]string) (bool, error) {
	attributes := map[string]string{"namespace": c.namespace}
	maps.Copy(attributes, what)
	review := map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": attributes}}
	var answer struct {
		Status *struct {
			Allowed         bool
			EvaluationError string
		}
	}
	err := c.ask(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, &answer)
	if err == nil && (answer.Status == nil || answer.Status.EvaluationError != "") {
		err = errors.New("the API server could not answer what this account can do")
	}
	return err == nil && answer.Status.Allowed, err
}

type selector struct {
	MatchLabels      map[string]string
	MatchExpressions []any
}

// ours reports whether a selector names pods of waldo, or every pod.
func (s *selector) ours() bool {
	if s == nil || len(s.MatchExpressions) > 0 {
		return false
	}
	name, named := s.MatchLabels["app.kubernetes.io/name"]
	return len(s.MatchLabels) == 0 || named && name == "waldo"
}

func (c *client) denies(ctx context.Context) error {
	type policy struct {
		Spec struct {
			PodSelector     selector
			PolicyTypes     []string
			Ingress, Egress []any
		}
	}
	at := "/apis/networking.k8s.io/v1/namespaces/" + url.PathEscape(c.namespace) + "/networkpolicies"
	all, err := list[policy](ctx, c, at)
	if err != nil {
		return err
	}
	for _, p := range all {
		s := p.Spec
		_, part := s.PodSelector.MatchLabels["app.kubernetes.io/component"]
		if s.PodSelector.ours() && !part && len(s.PolicyTypes) == 2 && len(s.Ingress)+len(s.Egress) == 0 {
			return nil
		}
	}
	return hint("install the chart's policies", "none of %d policies denies both directions for every pod of waldo",
		len(all))
}

func (c *client) budget(ctx context.Context) error {
	type budget struct{ Spec struct{ Selector *selector } }
	all, err := list[budget](ctx, c, "/apis/policy/v1/namespaces/"+url.PathEscape(c.namespace)+"/poddisruptionbudgets")
	if err != nil {
		return err
	}
	for _, b := range all {
		if b.Spec.Selector.ours() {
			return nil
		}
	}
	return hint("install the chart's budgets", "none of %d disruption budgets is for waldo's pods", len(all))
}

func (c *client) gvisor(ctx context.Context) error {
	type class struct{ Handler string }
	all, err := list[class](ctx, c, "/apis/node.k8s.io/v1/runtimeclasses")
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.Handler == "runsc" || r.Handler == "gvisor" {
			return nil
		}
	}
	return hint("install gVisor on the nodes, or serve contracts of level confined: worker.sandbox",
		"none of %d RuntimeClasses is gVisor's", len(all))
}

func (c *client) metric(ctx context.Context) error {
	_, err := list[any](ctx, c,
		"/apis/external.metrics.k8s.io/v1beta1/namespaces/"+url.PathEscape(c.namespace)+"/waldo_runs_waiting")
	var m missing
	if errors.As(err, &m) && m.code == http.StatusNotFound {
		return hint("docs/kubernetes.md has the adapter's rules; without worker.autoscaling nothing needs it",
			"the cluster has no external metric waldo_runs_waiting")
	}
	return err
}

// patience bounds one connection. A policy drops packets, so a denied address takes all of it.
const patience = 5 * time.Second

// network connects to addresses that policies must allow and deny. Outside of a pod it would prove nothing. The first
// ability without need: nothing was given to prove.
func network(ctx context.Context, inside bool, open, closed []string) (out []sandbox.Ability) {
	if !inside || len(open) == 0 || len(closed) == 0 {
		return []sandbox.Ability{{Name: "policy in force", What: "not proven: a connection from a pod was not tried",
			Hint: "helm test runs this in a pod, with --reachable and --unreachable"}}
	}
	dial := func(at string) error {
		conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", at)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	for _, at := range open {
		out = append(out, sandbox.Checked("allowed "+at, true, "it answers", dial(at)))
	}
	for _, at := range closed {
		err := dial(at)
		var name *net.DNSError
		switch {
		case err == nil:
			err = hint("use a network plugin that enforces NetworkPolicy, such as Calico or Cilium",
				"a connection came about: the cluster does not enforce its policies")
		case errors.As(err, &name): // control: an unknown name is no proof
		default:
			err = nil
		}
		out = append(out, sandbox.Checked("denied "+at, true, "no connection comes about", err))
	}
	return out
}
