package kubernetes

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"waldo/internal/app/fault"
)

// account is where Kubernetes puts the token of a pod's service account.
const account = "/var/run/secrets/kubernetes.io/serviceaccount"

// client asks an API server as one service account or user.
type client struct {
	server, token, namespace string
	http                     *http.Client
}

const hintPlace = "run it in a pod with a service account's token, as helm test does, or give --kubeconfig FILE"

// inside returns a client with the token of this pod's service account.
func inside() (*client, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	token, err := os.ReadFile(filepath.Join(account, "token"))
	if host == "" || errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Usage(hintPlace, "this is no pod with a service account's token")
	}
	authority, cerr := os.ReadFile(filepath.Join(account, "ca.crt"))
	namespace, nerr := os.ReadFile(filepath.Join(account, "namespace"))
	if err := errors.Join(err, cerr, nerr); err != nil {
		return nil, err
	}
	c := &client{server: "https://" + net.JoinHostPort(host, port), token: strings.TrimSpace(string(token)),
		namespace: strings.TrimSpace(string(namespace))}
	return c, c.connect(authority, nil)
}

// kubeconfig is the part of a kubeconfig that needs no program: addresses, certificates and tokens.
type kubeconfig struct {
	Current  string `yaml:"current-context"`
	Contexts []struct {
		Name    string
		Context struct{ Cluster, User, Namespace string }
	}
	Clusters []struct {
		Name    string
		Cluster struct {
			Server    string
			Authority encoded `yaml:"certificate-authority-data"`
			File      string  `yaml:"certificate-authority"`
		}
	}
	Users []struct {
		Name string
		User struct {
			Token     string
			TokenFile string  `yaml:"tokenFile"`
			Cert      encoded `yaml:"client-certificate-data"`
			CertFile  string  `yaml:"client-certificate"`
			Key       encoded `yaml:"client-key-data"`
			KeyFile   string  `yaml:"client-key"`
			Exec      any
		}
	}
}

// encoded is a file in base64.
type encoded []byte

func (p *encoded) UnmarshalYAML(n *yaml.Node) error {
	b, err := base64.StdEncoding.DecodeString(n.Value)
	*p = b
	return err
}

// fromFile returns a client for the current context of a kubeconfig. Paths in it are relative to its folder.
func fromFile(path string) (*client, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.Usage(hintPlace, "%v", err)
	}
	var k kubeconfig
	if err := yaml.Unmarshal(text, &k); err != nil {
		return nil, fault.Usage("kubectl config view shows how one looks", "%s is no kubeconfig",
			path) // err can hold a token
	}
	c := &client{}
	var cluster, user string
	for _, x := range k.Contexts {
		if x.Name == k.Current {
			cluster, user, c.namespace = x.Context.Cluster, x.Context.User, x.Context.Namespace
		}
	}
	read := func(held encoded, name string) []byte {
		if len(held) > 0 || name == "" {
			return held
		}
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		b, rerr := os.ReadFile(name)
		err = errors.Join(err, rerr)
		return b
	}
	var authority []byte
	for _, x := range k.Clusters {
		if x.Name == cluster {
			c.server, authority = strings.TrimSuffix(x.Cluster.Server, "/"), read(x.Cluster.Authority, x.Cluster.File)
		}
	}
	var own *tls.Certificate
	for _, x := range k.Users {
		u := x.User
		if x.Name != user {
			continue
		}
		if u.Exec != nil {
			return nil, fault.Usage("write a token into a kubeconfig for it: kubectl create token NAME",
				"user %q of %s gets its token from a program, which waldo does not start", user, path)
		}
		c.token = strings.TrimSpace(u.Token + string(read(nil, u.TokenFile)))
		if cert, key := read(u.Cert, u.CertFile), read(u.Key, u.KeyFile); len(cert) > 0 && err == nil {
			pair, perr := tls.X509KeyPair(cert, key)
			own, err = &pair, perr
		}
	}
	if err != nil {
		return nil, fault.Usage("correct the paths in "+path, "%v", err)
	}
	if !strings.HasPrefix(c.server, "https://") {
		return nil, fault.Usage("kubectl config use-context NAME selects one",
			"the current context of %s names no server with https", path)
	}
	return c, c.connect(authority, own)
}

// connect prepares TLS. The server's certificate is always checked, and no proxy is asked.
func (c *client) connect(authority []byte, own *tls.Certificate) error {
	conf := &tls.Config{}
	if len(authority) > 0 {
		if conf.RootCAs = x509.NewCertPool(); !conf.RootCAs.AppendCertsFromPEM(authority) {
			return fault.Usage("it must be PEM", "the API server's certificate authority cannot be read")
		}
	}
	if own != nil {
		conf.Certificates = []tls.Certificate{*own}
	}
	c.http = &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{TLSClientConfig: conf},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return nil
}

// missing is an answer of the API server that is no success.
type missing struct {
	code            int
	reason, message string
}

func (m missing) Error() string { return fmt.Sprintf("the API server answers %d %s", m.code, m.reason) }

// ask sends a request and decodes the answer. An answer beyond 8 MiB is cut, and then an error.
func (c *client) ask(ctx context.Context, method, path string, body, into any) error {
	var data io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		data = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.server+path, data)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	a, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(io.LimitReader(a.Body, 8<<20))
	if err != nil {
		return err
	}
	if a.StatusCode/100 != 2 {
		var s struct{ Reason, Message string }
		_ = json.Unmarshal(text, &s) // a proxy answers with another form
		return missing{a.StatusCode, s.Reason, s.Message}
	}
	return json.Unmarshal(text, into)
}
