package kubernetes

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"waldo/internal/app/fault"
	"waldo/internal/sandbox"
)

// stub answers as an API server does where all guards are there. It is no API server: make kubernetes asks a real one.
func stub(t *testing.T, change map[string]string) *client {
	t.Helper()
	answers := map[string]string{
		"GET /api/v1/namespaces/waldo":                                                  `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`,
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews":                   `{"status":{"allowed":false}}`,
		"GET /apis/networking.k8s.io/v1/namespaces/waldo/networkpolicies":               `{"items":[{"spec":{"podSelector":{},"policyTypes":["Ingress","Egress"]}}]}`,
		"GET /apis/policy/v1/namespaces/waldo/poddisruptionbudgets":                     `{"items":[{"spec":{"selector":{"matchLabels":{"app.kubernetes.io/name":"waldo"}}}}]}`,
		"GET /apis/node.k8s.io/v1/runtimeclasses":                                       `{"items":[{"handler":"runsc"}]}`,
		"GET /apis/external.metrics.k8s.io/v1beta1/namespaces/waldo/waldo_runs_waiting": `{"items":[]}`,
	}
	for k, v := range change {
		answers[k] = v
	}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer t0k" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		a, ok := answers[r.Method+" "+r.URL.Path]
		if code := 0; !ok || a != "" && a[0] != '{' {
			if _, err := fmt.Sscan(a, &code); err != nil {
				code = http.StatusNotFound
			}
			w.WriteHeader(code)
			_, why, _ := strings.Cut(a, " ")
			_, _ = fmt.Fprintf(w, `{"kind":"Status","reason":"Refused","message":%q}`, why)
			return
		}
		_, _ = io.WriteString(w, a)
	}))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "config")
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	text := fmt.Sprintf("current-context: a\ncontexts: [{name: a, context: {cluster: b, user: c, namespace: waldo}}]\n"+
		"clusters: [{name: b, cluster: {server: %q, certificate-authority-data: %s}}]\n"+
		"users: [{name: c, user: {token: t0k}}]\n",
		s.URL, base64.StdEncoding.EncodeToString(authority))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := fromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// failed returns the names of the abilities that are not there.
func failed(all []sandbox.Ability) (out []string) {
	for _, a := range all {
		if !a.OK {
			out = append(out, a.Name)
		}
	}
	return out
}

// TestExamine: each guard that is not there is one finding, and no other.
func TestExamine(t *testing.T) {
	if got := failed(stub(t, nil).examine(t.Context())); got != nil {
		t.Fatalf("control: %q", got)
	}
	const policies = "GET /apis/networking.k8s.io/v1/namespaces/waldo/networkpolicies"
	for _, c := range []struct{ at, answer, want string }{
		{"GET /api/v1/namespaces/waldo", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`,
			"Pod Security"},
		{"GET /api/v1/namespaces/waldo", "403", "Pod Security"},
		{policies, `{"items":[]}`, "network policy"},
		{policies, "403", "network policy"},
		{policies, `{"items":[{"spec":{"podSelector":{},"policyTypes":["Ingress"]}}]}`, "network policy"},
		{policies, `{"items":[{"spec":{"podSelector":{},"policyTypes":["Ingress","Egress"],"egress":[{}]}}]}`,
			"network policy"},
		{policies, `{"items":[{"spec":{"podSelector":{"matchLabels":{"app.kubernetes.io/name":"waldo",` +
			`"app.kubernetes.io/component":"gateway"}},"policyTypes":["Ingress","Egress"]}}]}`, "network policy"},
		{policies, `{"items":[{"spec":{"podSelector":{"matchLabels":{"app":"other"}},"policyTypes":["Ingress","Egress"]}}]}`, "network policy"},
		{"GET /apis/policy/v1/namespaces/waldo/poddisruptionbudgets", `{"items":[{"spec":{}}]}`, "disruption budget"},
		{"GET /apis/node.k8s.io/v1/runtimeclasses", `{"items":[{"handler":"runc"}]}`, "RuntimeClass gvisor"},
		{"GET /apis/external.metrics.k8s.io/v1beta1/namespaces/waldo/waldo_runs_waiting", "404", "autoscaler's metric"},
	} {
		got := failed(stub(t, map[string]string{c.at: c.answer}).examine(t.Context()))
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("%s %s: %q, not %q", c.at, c.answer, got, c.want)
		}
	}
}

// TestRights: an account that can do what is forbidden is a finding, and so is an answer that says nothing. An account
// that makes pods needs a refusal by Pod Security; another refusal proves nothing.
func TestRights(t *testing.T) {
	const reviews, pods = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		"POST /api/v1/namespaces/waldo/pods"
	const yes, refused = `{"status":{"allowed":true}}`, `403 violates PodSecurity "restricted:latest"`
	for _, c := range []struct{ review, pod, want string }{
		{`{"status":{"allowed":false}}`, `{}`, ""},
		{yes, refused, "service account"},
		{yes, `{}`, "Pod Security service account"},
		{yes, "403 another reason", "Pod Security service account"},
		{yes, `422 violates PodSecurity`, "Pod Security service account"},
		{`{}`, refused, "Pod Security service account"},
		{`{"status":{"allowed":false,"evaluationError":"role not found"}}`, refused, "Pod Security service account"},
		{"500", refused, "Pod Security service account"},
	} {
		got := failed(stub(t, map[string]string{reviews: c.review, pods: c.pod}).examine(t.Context()))
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestCertificate: a server with another certificate gets no token.
func TestCertificate(t *testing.T) {
	c, other := stub(t, nil), stub(t, nil)
	c.server, other.server = other.server, c.server
	if err := c.connect([]byte("none"), nil); err == nil {
		t.Error("an authority that cannot be read was taken")
	}
	c.http.Transport.(*http.Transport).TLSClientConfig.RootCAs = nil
	if err := c.ask(t.Context(), http.MethodGet, "/api/v1/namespaces/waldo", nil, &struct{}{}); err == nil {
		t.Error("an unknown certificate was taken")
	}
}

// TestNetworkInForce: an address that must be denied and answers is a finding; so is an allowed one that does not
// answer, and a denied one whose name is unknown.
func TestNetworkInForce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	up, down := l.Addr().String(), gone.Addr().String()
	for _, c := range []struct {
		inside       bool
		open, closed []string
		want         int
	}{
		{true, []string{up}, []string{down}, 0}, {true, []string{up}, []string{up}, 1}, {true, []string{down},
			[]string{down}, 1},
		{true, []string{up}, []string{"none.invalid:1"}, 1}, {true, nil, []string{down}, 1}, {false, []string{up},
			[]string{down}, 1},
	} {
		if got := failed(network(t.Context(), c.inside, c.open, c.closed)); len(got) != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestOutside: outside of a cluster, and with a kubeconfig that is no use, the error is the user's, with a hint and
// without the file's text.
func TestOutside(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	write := func(text string) string {
		at := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return at
	}
	const users = "current-context: a\ncontexts: [{name: a, context: {cluster: b, user: c}}]\n" +
		"users: [{name: c, user: %s}]\n" +
		"clusters: [{name: b, cluster: {server: %q}}]\n"
	for name, flags := range map[string][]string{
		"no pod": {"--kubernetes"}, "alone": {"--namespace", "x"}, "no file": {"--kubernetes", "--kubeconfig",
			dir + "/none"},
		"no yaml":      {"--kubernetes", "--kubeconfig", write("token: hunter2: {")},
		"no context":   {"--kubernetes", "--kubeconfig", write("users: []")},
		"plain http":   {"--kubernetes", "--kubeconfig", write(fmt.Sprintf(users, "{token: hunter2}", "http://a"))},
		"a program":    {"--kubernetes", "--kubeconfig", write(fmt.Sprintf(users, "{exec: {command: x}}", "https://a"))},
		"no namespace": {"--kubernetes", "--kubeconfig", write(fmt.Sprintf(users, "{token: hunter2}", "https://a"))},
	} {
		c := &cobra.Command{}
		run := examine(c)
		if err := c.ParseFlags(flags); err != nil {
			t.Fatal(err)
		}
		_, err := run(t.Context())
		var f *fault.Error
		if !errors.As(err, &f) || !f.Usage || f.Tip == "" || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := &cobra.Command{}
	run := examine(c)
	if reports, err := run(t.Context()); err != nil || reports != nil {
		t.Errorf("control: without flags %v %v", reports, err)
	}
}
