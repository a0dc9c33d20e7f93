package main

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// patience is the most that a part of the control plane takes to start, and to notice a change.
const patience = 3 * time.Minute

// cluster is a control plane without controllers and nodes: etcd and the API server, on loopback.
type cluster struct {
	t         *testing.T
	dir, at   string
	authority []byte
	http      *http.Client
}

// freePort returns a port of loopback that was free just now.
func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// run starts a part of the control plane, and ends it with the test. Its log is shown if the test fails.
func (c *cluster) run(part string, args ...string) {
	log, err := os.Create(filepath.Join(c.dir, part+".log"))
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(os.Getenv("WALDO_CONTROLPLANE"), append([]string{part}, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, c.dir
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, _ := os.ReadFile(log.Name()); c.t.Failed() {
			c.t.Logf("%s: …%s", part, text[max(0, len(text)-3000):])
		}
	})
}

// start makes a cluster whose administrator has the token "admin".
func start(t *testing.T) *cluster {
	if os.Getenv("WALDO_CONTROLPLANE") == "" {
		t.Skip("make kubernetes gives WALDO_CONTROLPLANE")
	}
	c := &cluster{t: t, dir: t.TempDir()}
	write := func(name string, text []byte) string {
		at := filepath.Join(c.dir, name)
		if err := os.WriteFile(at, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return at
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	keyFile := write("sa.key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
		Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	etcd, port := "http://127.0.0.1:"+freePort(t), freePort(t)
	c.run("etcd", "--data-dir", filepath.Join(c.dir, "etcd"), "--listen-client-urls", etcd, "--advertise-client-urls",
		etcd,
		"--listen-peer-urls", "http://127.0.0.1:"+freePort(t), "--log-level", "warn")
	c.run("apiserver", "--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--secure-port", port, "--cert-dir", c.dir,
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", keyFile,
		"--service-account-signing-key-file", keyFile, "--authorization-mode", "RBAC", "--allow-privileged",
		"--service-cluster-ip-range",
		"10.0.0.0/24",
		"--token-auth-file", write("tokens.csv", []byte("admin,admin,admin,system:masters\n")))
	c.at = "https://127.0.0.1:" + port
	c.wait("the API server", func() bool {
		c.authority, err = os.ReadFile(filepath.Join(c.dir, "apiserver.crt"))
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(c.authority)
		c.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, Timeout: time.Minute}
		return err == nil && c.try(http.MethodGet, "/readyz", nil) == http.StatusOK
	})
	return c
}

func (c *cluster) wait(what string, done func() bool) {
	c.t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func (c *cluster) kubeconfig(token string) string {
	at := filepath.Join(c.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: a\n"+
		"contexts: [{name: a, context: {cluster: b, user: c}}]\n"+
		"clusters: [{name: b, cluster: {server: %q, certificate-authority-data: %s}}]\n"+
		"users: [{name: c, user: {token: %q}}]\n",
		c.at, base64.StdEncoding.EncodeToString(c.authority), token)
	if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return at
}

// ask sends a request of the administrator; code 0: no answer.
func (c *cluster) ask(method, path, kind string, body []byte) (code int, answer []byte) {
	r, err := http.NewRequest(method, c.at+path, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer admin")
	r.Header.Set("Content-Type", kind)
	a, err := c.http.Do(r)
	if err != nil {
		return 0, nil
	}
	defer a.Body.Close()
	answer, _ = io.ReadAll(a.Body)
	return a.StatusCode, answer
}

func (c *cluster) try(method, path string, body []byte) int {
	code, _ := c.ask(method, path, "application/json", body)
	return code
}

// collection is the path of the objects of one kind.
func collection(o runtime.Object, namespace string) string {
	gvk, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		panic(err)
	}
	k := gvk[0]
	name := strings.ToLower(k.Kind) + "s"
	if strings.HasSuffix(k.Kind, "Policy") {
		name = strings.TrimSuffix(name, "ys") + "ies"
	}
	at := "/apis/" + k.Group + "/" + k.Version
	if k.Group == "" {
		at = "/api/" + k.Version
	}
	if !strings.HasPrefix(k.Kind, "Cluster") {
		at += "/namespaces/" + namespace
	}
	return at + "/" + name
}

// apply applies a text as kubectl apply --server-side does.
func (c *cluster) apply(text string) {
	c.t.Helper()
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	path := collection(o, "waldo") + "/" + o.(metav1.Object).GetName()
	for range 2 { // the second time nothing changes
		code, answer := c.ask(http.MethodPatch, path+"?fieldManager=test&fieldValidation=Strict",
			"application/apply-patch+yaml",
			[]byte(text))
		if code != http.StatusOK && code != http.StatusCreated {
			c.t.Errorf("%s: %d %s", path, code, answer)
		}
	}
}

// doctor runs waldo doctor --kubernetes with a token, and returns what is missing in its report on the cluster.
func (c *cluster) doctor(token string) (missing []string) {
	c.t.Helper()
	cmd := exec.Command(os.Getenv("WALDO_PROGRAM"), "--json", "--state", filepath.Join(c.dir, "state"), "doctor",
		"--kubernetes",
		"--kubeconfig", c.kubeconfig(token), "--namespace", "waldo")
	cmd.Dir = c.t.TempDir()
	out, err := cmd.Output()
	var reports []struct {
		Driver    string
		Abilities []struct {
			Name, What string
			OK         bool
		}
	}
	if jerr := json.Unmarshal(out, &reports); jerr != nil || len(reports) == 0 {
		c.t.Fatalf("waldo doctor: %v %v %s", err, jerr, out)
	}
	last := reports[len(reports)-1]
	if last.Driver != "kubernetes, namespace waldo" {
		c.t.Fatalf("waldo doctor: no report on the cluster: %s", out)
	}
	for _, a := range last.Abilities {
		c.t.Logf("%v %s: %s", a.OK, a.Name, a.What)
		if !a.OK {
			missing = append(missing, a.Name)
		}
	}
	return missing
}

// TestControlPlane: a real API server takes every object of the chart, admits the pods that its workloads would make at
// level restricted, and waldo doctor finds each guard, and each one that is taken away.
func TestControlPlane(t *testing.T) {
	c := start(t)
	c.wait("the namespace", func() bool {
		return c.try(http.MethodPost, "/api/v1/namespaces", []byte(`{"metadata":{"name":"waldo","labels":`+
			`{"pod-security.kubernetes.io/enforce":"restricted"}}}`)) == http.StatusCreated
	})
	if code := c.try(http.MethodPost, "/api/v1/namespaces/waldo/serviceaccounts", // as a controller does
		[]byte(`{"metadata":{"name":"default"}}`)); code != http.StatusCreated {
		t.Fatalf("the default account: %d", code)
	}
	v := values(t, "full", nil)
	texts, err := render(chart, "waldo", v)
	if err != nil {
		t.Fatal(err)
	}
	all := objects(t, v)
	worker := pods(all)["worker"]
	admit := func(p corev1.PodTemplateSpec) (int, string) {
		if p.Labels["app.kubernetes.io/component"] == "gateway" { // as the controller of StatefulSets adds it
			claim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "state-0"}}
			p.Spec.Volumes = append(slices.Clone(p.Spec.Volumes), corev1.Volume{Name: "state", VolumeSource: claim})
		}
		b, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-", Labels: p.Labels},
			Spec: p.Spec})
		if err != nil {
			t.Fatal(err)
		}
		code, answer := c.ask(http.MethodPost, "/api/v1/namespaces/waldo/pods?dryRun=All", "application/json", b)
		return code, string(answer)
	}
	slices.SortStableFunc(texts, func(a, b string) int { // accounts and configuration come first, as helm installs them
		first := func(s string) int {
			if strings.Contains(s, "kind: ServiceAccount\nmetadata") || strings.Contains(s, "kind: ConfigMap") {
				return 0
			}
			return 1
		}
		return first(a) - first(b)
	})
	test := func(text string) bool { return strings.Contains(text, "helm.sh/hook: test") }
	for _, text := range texts {
		if !test(text) {
			c.apply(text)
		}
	}
	if code, why := admit(worker); code != http.StatusForbidden || !strings.Contains(why, "RuntimeClass") {
		t.Errorf("control: a pod of a RuntimeClass that is not there: %d %s", code, why)
	}
	if code := c.try(http.MethodPost, "/apis/node.k8s.io/v1/runtimeclasses",
		[]byte(`{"metadata":{"name":"gvisor"},"handler":"runsc"}`)); code != http.StatusCreated {
		t.Fatalf("RuntimeClass: %d", code)
	}
	c.wait("admission to know the RuntimeClass", func() bool {
		code,
			_ := admit(worker)
		return code == http.StatusCreated
	})
	for component, p := range pods(all) {
		if code, why := admit(p); code != http.StatusCreated {
			t.Errorf("%s: %d %s", component, code, why)
		}
		yes := true
		p = *p.DeepCopy()
		p.Spec.Containers[0].SecurityContext.Privileged = &yes
		p.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
		if code, why := admit(p); code != http.StatusForbidden || !strings.Contains(why,
			`violates PodSecurity \"restricted:latest\"`) {
			t.Errorf("control: a privileged %s: %d %s", component, code, why)
		}
	}
	for _, text := range texts {
		if test(text) {
			c.apply(text)
		}
	}
	c.proves(t)
}

// proves runs waldo doctor as the chart's account and as the administrator, and takes guards away.
func (c *cluster) proves(t *testing.T) {
	code, answer := c.ask(http.MethodPost, "/api/v1/namespaces/waldo/serviceaccounts/waldo-doctor/token",
		"application/json",
		[]byte(`{"spec":{"expirationSeconds":3600}}`))
	var token struct{ Status struct{ Token string } }
	if json.Unmarshal(answer, &token) != nil || code != http.StatusCreated {
		t.Fatalf("a token: %d %s", code, answer)
	}
	never := []string{"autoscaler's metric", "policy in force"} // without an adapter, and outside of a pod
	check := func(what, token string, want ...string) {
		t.Helper()
		if got := c.doctor(token); !slices.Equal(got, append(want, never...)) {
			t.Errorf("%s: missing %q, not %q", what, got, append(want, never...))
		}
	}
	check("the chart's account", token.Status.Token)
	check("the administrator", "admin", "service account")
	change := func(method, path, body string) {
		t.Helper()
		if code, answer := c.ask(method, path, "application/merge-patch+json", []byte(body)); code != http.StatusOK {
			t.Fatalf("%s %s: %d %s", method, path, code, answer)
		}
	}
	change(http.MethodPatch, "/api/v1/namespaces/waldo",
		`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`)
	change(http.MethodDelete, "/apis/networking.k8s.io/v1/namespaces/waldo/networkpolicies/waldo-deny", "")
	change(http.MethodDelete, "/apis/policy/v1/namespaces/waldo/poddisruptionbudgets/waldo-gateway", "")
	change(http.MethodDelete, "/apis/policy/v1/namespaces/waldo/poddisruptionbudgets/waldo-worker", "")
	change(http.MethodDelete, "/apis/node.k8s.io/v1/runtimeclasses/gvisor", "")
	check("without guards", token.Status.Token, "Pod Security", "network policy", "disruption budget",
		"RuntimeClass gvisor")
	change(http.MethodDelete, "/apis/rbac.authorization.k8s.io/v1/namespaces/waldo/rolebindings/waldo-doctor", "")
	c.wait("the account's rights to end", func() bool {
		return slices.Contains(c.doctor(token.Status.Token), "network policy")
	})
}
