package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

const chart = "../../deploy/helm/waldo"

// values reads a file of testdata and changes it: each change is a line of YAML in the form of helm --set-json.
func values(t *testing.T, name string, change map[string]any) map[string]any {
	t.Helper()
	v, err := chartutil.ReadValuesFile("testdata/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	for path, to := range change {
		at := map[string]any(v)
		parts := strings.Split(path, ".")
		for _, p := range parts[:len(parts)-1] {
			if _, ok := at[p].(map[string]any); !ok {
				at[p] = map[string]any{}
			}
			at = at[p].(map[string]any)
		}
		at[parts[len(parts)-1]] = to
	}
	return v
}

// objects renders the chart and decodes it as the API server does: an unknown field or a doubled key is an error.
func objects(t *testing.T, v map[string]any) (out []runtime.Object) {
	t.Helper()
	texts, err := render(chart, "waldo", v)
	if err != nil {
		t.Fatal(err)
	}
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, text := range texts {
		o, _, err := strict.Decode([]byte(text), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		out = append(out, o)
	}
	return out
}

func of[T runtime.Object](all []runtime.Object) (out []T) {
	for _, o := range all {
		if one, ok := o.(T); ok {
			out = append(out, one)
		}
	}
	return out
}

// pods returns the pods that the objects make, by component.
func pods(all []runtime.Object) map[string]corev1.PodTemplateSpec {
	out := map[string]corev1.PodTemplateSpec{}
	add := func(p corev1.PodTemplateSpec) { out[p.Labels["app.kubernetes.io/component"]] = p }
	for _, d := range of[*appsv1.Deployment](all) {
		add(d.Spec.Template)
	}
	for _, s := range of[*appsv1.StatefulSet](all) {
		add(s.Spec.Template)
	}
	for _, p := range of[*corev1.Pod](all) {
		add(corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec})
	}
	return out
}

// variants are the shapes that an installation has.
var variants = map[string]struct {
	file   string
	change map[string]any
	pods   []string
}{
	"small":     {"small", nil, []string{"doctor", "gateway"}},
	"ephemeral": {"small", map[string]any{"gateway.state.persistent": false}, []string{"doctor", "gateway"}},
	"no doctor": {"small", map[string]any{"doctor.enabled": false}, []string{"gateway"}},
	"full":      {"full", nil, []string{"doctor", "gateway", "worker"}},
	"confined":  {"full", map[string]any{"worker.sandbox": "confined"}, []string{"doctor", "gateway", "worker"}},
	"pods": {"full", map[string]any{"network.store.cidr": "", "network.store.podLabels": map[string]any{"app": "db"},
		"network.store.namespace": "db"}, []string{"doctor", "gateway", "worker"}},
}

// TestRestricted: Kubernetes' own evaluator of Pod Security admits each pod at level restricted.
func TestRestricted(t *testing.T) {
	judge, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	refusals := func(p corev1.PodTemplateSpec) (why []string) {
		for _, r := range judge.EvaluatePod(restricted, &p.ObjectMeta, &p.Spec) {
			if !r.Allowed {
				why = append(why, r.ForbiddenReason)
			}
		}
		return why
	}
	for name, v := range variants {
		all := pods(objects(t, values(t, v.file, v.change)))
		if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, v.pods) {
			t.Errorf("%s: pods %q", name, got)
		}
		for component, p := range all {
			if why := refusals(p); why != nil {
				t.Errorf("%s: %s: %q", name, component, why)
			}
			for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
				s := c.SecurityContext
				if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
					c.Resources.Limits.Memory().IsZero() {
					t.Errorf("%s: %s: %s: a writable root, or no limit of memory", name, component, c.Name)
				}
			}
			if token := *p.Spec.AutomountServiceAccountToken; token != (component == "doctor") {
				t.Errorf("%s: %s: automountServiceAccountToken %v", name, component, token)
			}
			yes := true
			for i := range p.Spec.Containers { // control: each container counts
				q := p.Spec.DeepCopy()
				q.Containers[i].SecurityContext.Privileged = &yes
				if why := refusals(corev1.PodTemplateSpec{Spec: *q}); !slices.Contains(why, "privileged") {
					t.Errorf("control: privileged: %q", why)
				}
			}
		}
		for _, a := range of[*corev1.ServiceAccount](objects(t, values(t, v.file, v.change))) {
			if a.AutomountServiceAccountToken == nil || *a.AutomountServiceAccountToken {
				t.Errorf("%s: service account %s mounts its token", name, a.Name)
			}
		}
	}
}

// TestSecrets: secrets come by reference alone, and the doctor's role reads none.
func TestSecrets(t *testing.T) {
	all := objects(t, values(t, "full", nil))
	if n := len(of[*corev1.Secret](all)); n != 0 {
		t.Errorf("%d Secrets in the chart", n)
	}
	secret := regexp.MustCompile(`(?i)password|token|secret|key`)
	refs := map[string]bool{}
	for component, p := range pods(all) {
		for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
			for _, e := range c.Env {
				if secret.MatchString(e.Name) && e.Value != "" {
					t.Errorf("%s: %s has a value", component, e.Name)
				}
				if e.ValueFrom != nil {
					refs[component+" "+e.ValueFrom.SecretKeyRef.Name] = true
				}
			}
		}
		for _, v := range p.Spec.Volumes {
			if v.Secret != nil {
				refs[component+" "+v.Secret.SecretName] = true
			}
		}
	}
	want := []string{"gateway helpdesk", "gateway waldo-database", "gateway waldo-worker", "worker waldo-database",
		"worker waldo-worker"}
	if got := slices.Sorted(maps.Keys(refs)); !slices.Equal(got, want) {
		t.Errorf("references %q", got)
	}
	rules := of[*rbacv1.Role](all)[0].Rules
	for _, r := range append(rules, of[*rbacv1.ClusterRole](all)[0].Rules...) {
		for _, what := range r.Resources {
			if slices.Contains([]string{"secrets", "pods", "configmaps", "*"}, what) {
				t.Errorf("the doctor reads %s", what)
			}
		}
		for _, verb := range r.Verbs {
			if verb != "get" && verb != "list" {
				t.Errorf("the doctor has the verb %s", verb)
			}
		}
	}
}

// admitted are the ports of a pod that some policy opens. The second result: a policy denies the rest in both
// directions.
func admitted(policies []*networkingv1.NetworkPolicy, pod labels.Set) (ports []intstr.IntOrString, denied bool) {
	for _, p := range policies {
		s, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil || !s.Matches(pod) {
			continue
		}
		for _, in := range p.Spec.Ingress {
			for _, port := range in.Ports {
				ports = append(ports, *port.Port)
			}
			if len(in.Ports) == 0 || len(in.From) == 0 {
				ports = append(ports, intstr.FromString("open to all"))
			}
		}
		denied = denied || len(p.Spec.PolicyTypes) == 2 && len(p.Spec.Ingress) == 0 && len(p.Spec.Egress) == 0
	}
	return ports, denied
}

// TestNetwork: every pod is denied by default, and only the gateway's port is open, to named peers.
func TestNetwork(t *testing.T) {
	for name, v := range variants {
		all := objects(t, values(t, v.file, v.change))
		policies := of[*networkingv1.NetworkPolicy](all)
		for component, p := range pods(all) {
			ports, denied := admitted(policies, labels.Set(p.Labels))
			if !denied {
				t.Errorf("%s: no policy denies by default for %s", name, component)
			}
			for _, port := range ports {
				if component != "gateway" || port.String() != "http" {
					t.Errorf("%s: %s has the port %s open", name, component, port.String())
				}
			}
			if _, control := admitted(policies[1:], labels.Set(p.Labels)); component == "doctor" && control {
				t.Errorf("control: %s: %s is denied without the first policy", name, component)
			}
		}
		for _, p := range policies {
			for _, out := range p.Spec.Egress {
				wide := slices.ContainsFunc(out.To, func(to networkingv1.NetworkPolicyPeer) bool {
					return to.IPBlock != nil && strings.HasSuffix(to.IPBlock.CIDR, "/0")
				})
				if wide != (p.Name == "waldo-doctor" && wide) || len(out.To) == 0 {
					t.Errorf("%s: %s reaches every address", name, p.Name)
				}
			}
		}
		for _, s := range of[*corev1.Service](all) { // its port is a port of a pod that it selects
			for _, port := range s.Spec.Ports {
				found := false
				for _, p := range pods(all) {
					found = found || labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.Labels)) &&
						slices.ContainsFunc(p.Spec.Containers[0].Ports, func(c corev1.ContainerPort) bool {
							return c.Name == port.TargetPort.String()
						})
				}
				if !found {
					t.Errorf("%s: service %s leads to no port %s", name, s.Name, port.TargetPort.String())
				}
			}
		}
	}
}

// TestBudgets: each workload has a disruption budget, and the autoscaler follows queue and age of the worker's level.
func TestBudgets(t *testing.T) {
	all := objects(t, values(t, "full", nil))
	for component, p := range pods(all) {
		has := slices.ContainsFunc(of[*policyv1.PodDisruptionBudget](all), func(b *policyv1.PodDisruptionBudget) bool {
			s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			return err == nil && s.Matches(labels.Set(p.Labels))
		})
		if has == (component == "doctor") {
			t.Errorf("%s: disruption budget %v", component, has)
		}
	}
	scaler := of[*autoscalingv2.HorizontalPodAutoscaler](all)[0]
	var metrics []string
	for _, m := range scaler.Spec.Metrics {
		metrics = append(metrics, fmt.Sprint(m.External.Metric.Name, m.External.Metric.Selector.MatchLabels))
	}
	if want := []string{"waldo_runs_waitingmap[isolation:namespace size:small]",
		"waldo_runs_waiting_secondsmap[isolation:namespace size:small]"}; !slices.Equal(metrics, want) {
		t.Errorf("metrics %q", metrics)
	}
	worker := pods(all)["worker"].Spec
	if *worker.RuntimeClassName != "gvisor" || !slices.Contains(worker.Containers[0].Args, "namespace") {
		t.Errorf("gvisor: %v %q", worker.RuntimeClassName, worker.Containers[0].Args)
	}
	worker = pods(objects(t, values(t, "full",
		map[string]any{"worker.sandbox": "auto"})))["worker"].Spec // no cluster to ask
	if worker.RuntimeClassName != nil || !slices.Contains(worker.Containers[0].Args, "confined") {
		t.Errorf("auto: %v %q", worker.RuntimeClassName, worker.Containers[0].Args)
	}
}

// TestMistakes: a wrong value is refused with its name.
func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		file, path string
		to         any
		want       string
	}{
		{"small", "gatway.replicas", 2, "gatway"},
		{"small", "gateway.replicas", 2, "gateway.replicas: more than one needs store.url"},
		{"small", "gateway.replicas", "two", "/gateway/replicas"},
		{"small", "config", "", "config: give the text of waldo.yaml"},
		{"small", "configMap", "mine", "config and configMap: give one of them"},
		{"small", "image.repository", "", "image.repository: name the image"},
		{"small", "worker.enabled", true, "worker.enabled: workers take runs from a database"},
		{"full", "worker.key.secret", "", "worker.key.secret: name the Secret"},
		{"full", "worker.sandbox", "none", "/worker/sandbox"},
		{"full", "worker", map[string]any{"enabled": true, "key": map[string]any{"secret": "k"}},
			"worker.image.repository: level"},
		{"full", "network.store.cidr", "", "network.store: say where the database"},
		{"full", "store.url", "postgres://waldo:hunter2@db.example.com/waldo", "store.url: it holds a password"},
		{"full", "store.password.value", "hunter2", "/store/password"},
		{"full", "secrets", []any{map[string]any{"env": "A", "value": "hunter2"}}, "/secrets/0"},
	} {
		_, err := render(chart, "waldo", values(t, c.file, map[string]any{c.path: c.to}))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%v: %v", c.path, c.to, err)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the message holds the value: %v", c.path, err)
		}
	}
}

// TestLint: Helm's own linter finds no error.
func TestLint(t *testing.T) {
	for _, file := range []string{"small", "full"} {
		for _, m := range lint.All(chart, values(t, file, nil), "waldo", false).Messages {
			if m.Severity > 1 {
				t.Errorf("%s: %v", file, m)
			}
		}
	}
}
