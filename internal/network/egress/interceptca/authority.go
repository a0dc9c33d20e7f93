// Package interceptca is the certificate authority of one sandbox. Only programs in that sandbox trust it, for the
// few hosts whose TLS waldo must intercept. Its key is made with the sandbox, is never written and ends with it. Its
// certificate limits the hosts that it can sign for.
package interceptca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync"
	"time"
)

// life is the validity of certificates: longer than any sandbox.
const life = 400 * 24 * time.Hour

// Authority vouches for hosts. The zero Authority and no Authority vouch for none.
type CA struct {
	domains []string
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey // of the authority
	leaf    *ecdsa.PrivateKey // of every certificate that it gives

	mu    sync.Mutex
	given map[string]*tls.Certificate
}

// New makes an authority for domains: "api.example.com" is that host and, since a name constraint
// cannot say less (RFC 5280 §4.2.1.10), the names below it.
func New(domains []string) (*CA, error) {
	if len(domains) == 0 {
		return nil, errors.New("an authority for no host")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	c, err := template("waldo, for the hosts of one sandbox")
	if err != nil {
		return nil, err
	}
	c.IsCA, c.BasicConstraintsValid, c.MaxPathLenZero = true, true, true
	c.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	c.PermittedDNSDomains, c.PermittedDNSDomainsCritical = domains, true
	c.ExcludedIPRanges = []*net.IPNet{
		{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	a := &CA{domains: domains, key: key, leaf: leaf, given: map[string]*tls.Certificate{}}
	a.cert, err = x509.ParseCertificate(der)
	return a, err
}

// PEM returns the certificate that a sandbox must trust.
func (a *CA) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Certificate returns a certificate for one host, and the same one each time.
func (a *CA) Certificate(host string) (*tls.Certificate, error) {
	if a == nil || !a.vouches(host) {
		return nil, fmt.Errorf("the authority of this sandbox does not vouch for %s", host)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.given[host]; c != nil {
		return c, nil
	}
	c, err := template("")
	if err != nil {
		return nil, err
	}
	c.DNSNames = []string{host}
	c.KeyUsage, c.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &a.leaf.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a.given[host] = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leaf, Leaf: parsed}
	return a.given[host], nil
}

func (a *CA) vouches(host string) bool {
	for _, d := range a.domains {
		if host == d || strings.HasSuffix(host, "."+d) {
			return true
		}
	}
	return false
}

func template(name string) (*x509.Certificate, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	c := &x509.Certificate{SerialNumber: n, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(life)}
	if name != "" {
		c.Subject = pkix.Name{CommonName: name}
	}
	return c, nil
}
