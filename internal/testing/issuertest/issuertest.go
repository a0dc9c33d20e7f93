// Package issuertest starts a real authorization server for tests: oidc-provider of npm, a certified OpenID provider.
package issuertest

import (
	"bufio"
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"waldo/internal/testing/repo"
)

// The two ways in which the server is set up.
var (
	//go:embed dpop.mjs
	DPoP string // takes one public key of a client, as JWK. It demands proofs of possession.

	// Login takes the redirect address of the clients "waldo", "other" and "page". The last is public; the secret of others
	// is Secret. "robot" gets access tokens for any resource, with the scopes mcp and other. Each person logs in with any
	// password. The claim "groups" of ann is staff, of bea staff and leads, and of others nothing.
	//
	//go:embed login.mjs
	Login string
)

// Secret is a secret of clients. Basic authentication must encode its space and colon (RFC 6749 §2.3.1).
const Secret = "hush env:S"

// Issuer is a running server.
type Issuer struct {
	URL string

	t   testing.TB
	in  io.Writer
	out *bufio.Reader
}

// Start starts one of the two with its argument. It skips the test where Node or oidc-provider is missing, but not in CI.
func Start(t testing.TB, script string, argument any) *Issuer {
	t.Helper()
	modules, _ := repo.Cache(t, "npm", "node_modules")
	node, err := node(t)
	if _, found := repo.Cache(t, "npm", "node_modules", "oidc-provider"); err != nil || !found {
		if os.Getenv("CI") == "true" {
			t.Fatal("oidc-provider is not installed: run scripts/setup-npm.sh")
		}
		t.Skip("oidc-provider is not installed: run scripts/setup-npm.sh to test against it")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	_ = l.Close()
	text, err := json.Marshal(argument)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, "--input-type=module", "--eval", script, modules, port, string(text))
	log := &bytes.Buffer{}
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log)
		}
	})
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	s := &Issuer{URL: "http://127.0.0.1:" + port, t: t, in: in, out: bufio.NewReader(out)}
	s.hears("listening")
	return s
}

// node is the Node that scripts/npm pins beside oidc-provider, which needs a newer one than Debian 12 has; else the
// machine's.
func node(t testing.TB) (string, error) {
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	name := "node-linux-" + cmp.Or(arch, runtime.GOARCH)
	if pinned, found := repo.Cache(t, "npm", "node_modules", name, "bin", "node"); found {
		return pinned, nil
	}
	return exec.LookPath("node")
}

// hears waits for a line of the server.
func (s *Issuer) hears(want string) {
	s.t.Helper()
	if line, err := s.out.ReadString('\n'); err != nil || line != want+"\n" {
		s.t.Fatalf("the issuer prints %q: %v", line, err)
	}
}

// Rotate gives the server of Login new keys, and withdraws those before.
func (s *Issuer) Rotate() { s.do("rotate") }

// Withhold says whether the ID tokens of Login lack the claims of a person, which are then at /me alone.
func (s *Issuer) Withhold(yes bool) { s.do(fmt.Sprintf("withhold %v", yes)) }

func (s *Issuer) do(command string) {
	s.t.Helper()
	if _, err := io.WriteString(s.in, command+"\n"); err != nil {
		s.t.Fatal(err)
	}
	s.hears("done")
}

// Consent is a person with a new browser, who opens a page of the server, logs in and consents. A name "" declines
// instead. It returns the address at the client that the server leads to, without opening it.
func (s *Issuer) Consent(page, name string) (*url.URL, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	var back *url.URL
	browser := &http.Client{Jar: jar, Timeout: time.Minute, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if !strings.HasPrefix(r.URL.String(), s.URL+"/") {
			back = r.URL
			return http.ErrUseLastResponse
		}
		return nil
	}}
	forms := []url.Values{{"prompt": {"login"}, "login": {name}, "password": {"x"}}, {"prompt": {"consent"}}}
	resp, err := browser.Get(page)
	for len(forms) > 0 && err == nil && back == nil {
		_ = resp.Body.Close()
		at := resp.Request.URL.String()
		switch {
		case resp.StatusCode != http.StatusOK || !strings.Contains(at, "/interaction/"):
			return nil, fmt.Errorf("%s answers %d", at, resp.StatusCode)
		case name == "":
			resp, err = browser.Get(at + "/abort")
		default:
			resp, err = browser.PostForm(at, forms[0])
			forms = forms[1:]
		}
	}
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close()
	if back == nil {
		return nil, fmt.Errorf("%s answers %d and leads to no client", resp.Request.URL, resp.StatusCode)
	}
	return back, nil
}
